package relay_test

import (
	"testing"

	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/internal/test/reports"
	"github.com/ashlar-dev/storage/telemetry"
)

// A relay reports its subscribers, and a subscriber reports its subscriptions, and for how long it has had no relay.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	ofRelay, ofSubscriber := reports.New(), reports.New()
	relay := open(t, s, true, func(o *dynamodb.Options) { o.Telemetry = ofRelay.Options })
	subscriber := open(t, s, false, func(o *dynamodb.Options) { o.Telemetry = ofSubscriber.Options })
	fixture.WatchChanges(t, subscriber)
	// On a busy machine, the subscriber may lose its connection, and connects again.
	fixture.Eventually(t, "the relay reports one subscriber", func() bool { return ofRelay.Total(t, telemetry.RelaySubscribers) == 1 })
	if n := len(ofSubscriber.Values(t, telemetry.RelaySubscribers)); n > 0 {
		t.Error("a handle that is no relay reports subscribers")
	}
	if ofSubscriber.Total(t, telemetry.RelaySubscriptions) == 0 {
		t.Error("the subscriber reports no subscription")
	}
	if ofSubscriber.Total(t, telemetry.Capacity) == 0 || ofRelay.Total(t, telemetry.Capacity) <= ofSubscriber.Total(t, telemetry.Capacity) {
		t.Error("the relay does not report the units of its election")
	}
	_ = relay.Close()
	fixture.Eventually(t, "the lag of a subscriber without a relay", func() bool { return ofSubscriber.Total(t, telemetry.FeedLag) > 0 })
	open(t, s, true)
	fixture.Eventually(t, "the end of the lag", func() bool { return ofSubscriber.Total(t, telemetry.FeedLag) == 0 })
}
