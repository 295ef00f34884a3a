package relay_test

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The only candidate was killed as a relay and starts again at its address, with the certificate and the token of its files. Subscribers reach
// it by the record of its predecessor, and make it a relay.
func TestOnlyCandidateStartsAgain(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	cert, key, hash := certificate(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	trust := "&relay-ca=" + url.QueryEscape(cert) + "&relay-token-file=" + url.QueryEscape(token)
	directory, killed := openDirectory(t, s), &resourcepb.Resource{Id: &resourcepb.ID{
		Uid: "killed", Name: "1", Tenancy: &resourcepb.Tenancy{}, Type: &resourcepb.Type{Group: "relay", GroupVersion: "v1", Kind: "Relay"},
	}}
	openAtFreeAddress(t, s, func(address string) string {
		killed = publish(t, directory, killed, map[string]string{"process": "killed", "address": address, "key": hash})
		return trust + "&relay-cert=" + url.QueryEscape(cert) + "&relay-key=" + url.QueryEscape(key) + "&relay-advertise=" + address
	})
	b, err := openURL(t, s, trust+"&outage=100s")
	if err != nil {
		t.Fatal(err)
	}
	fixture.WatchChanges(t, b)
}

// A candidate that starts while there are two relays is published, because subscribers that miss a relay wake the published candidates.
// It would notice the loss of a relay after a minute only.
func TestLateCandidateIsPublished(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	first := open(t, s, true)
	open(t, s, true)
	fixture.WatchChanges(t, open(t, s, false))
	directory := openDirectory(t, s)
	publishedRelays(t, directory, 2)
	open(t, s, true)
	fixture.Eventually(t, "three candidates", func() bool {
		all, err := directory.List(t.Context(), storage.StrongConsistency, storage.UnversionedType{Group: "relay", Kind: "Candidate"}, &resourcepb.Tenancy{}, "")
		if err != nil {
			t.Fatal(err)
		}
		return len(all) == 3
	})
	_ = first.Close()
	publishedRelays(t, directory, 2)
}
