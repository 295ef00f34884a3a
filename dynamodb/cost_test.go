//go:build integration

package dynamodb_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestCosts compares the README's table of request units with the emulator's figures.
func TestCosts(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z][^|]+) \| ([0-9.]+) \|$`).FindAllStringSubmatch(string(readme), -1) {
		documented[row[1]] = row[2]
	}
	server := env.DynamoDB(t)
	cfg := aws.Config{
		Region: server.Region, BaseEndpoint: &server.Endpoint,
		Credentials: credentials.NewStaticCredentialsProvider("emulator", "emulator", ""),
	}
	var mu sync.Mutex
	total := 0.0
	// From time to time a handle reads the fence and the mark of the registry before a write: two strong reads of one unit, at most
	// every 2.5 seconds. On a slow machine such reads are among the measured calls.
	began, reads := time.Now(), 0 // before the first read of the fence, at opening
	b, err := dynamodb.New(t.Context(), awsdynamodb.NewFromConfig(cfg), dynamodbstreams.NewFromConfig(cfg), &dynamodb.Options{
		Table: server.Table, Prefix: server.Prefix(t),
		Spent: func(units float64) { mu.Lock(); defer mu.Unlock(); total += units },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	small, large := content(1, 500, false), content(1, 1000<<10, false)
	owner := fixture.Write(t, b, box("owner", small))
	owned := box("owned", small)
	owned.Owner = owner.GetId()
	big := fixture.Write(t, b, box("big", large))
	var res *resourcepb.Resource
	for _, c := range []struct {
		call string
		do   func()
	}{
		{"WriteCAS, creation without an owner", func() { res = fixture.Write(t, b, box("a", small)) }},
		{"WriteCAS, same owner or none", func() { res = fixture.Write(t, b, res) }},
		{"WriteCAS, creation with an owner", func() { owned = fixture.Write(t, b, owned) }},
		{"WriteCAS, another owner", func() { owned.Owner = res.GetId(); owned = fixture.Write(t, b, owned) }},
		{"Read, strong", func() { read(t, b, storage.StrongConsistency, res) }},
		{"Read, eventual", func() { read(t, b, storage.EventualConsistency, res) }},
		{"List of 2 small resources, strong", func() { list(t, b, storage.StrongConsistency) }},
		{"OwnerReferences of 1", func() {
			if children, err := b.OwnerReferences(t.Context(), res.GetId()); err != nil || len(children) != 1 {
				t.Fatal(children, err)
			}
		}},
		{"DeleteCAS, with an owner", func() { fixture.Remove(t, b, owned) }},
		{"DeleteCAS, without an owner", func() { fixture.Remove(t, b, res) }},
		{"Commit of 2 writes", func() {
			if _, err := b.Commit(t.Context(), []storage.Op{{Write: box("b", small)}, {Write: box("d", small)}}); err != nil {
				t.Fatal(err)
			}
		}},
		{"Read of 1000 KiB, not compressible, strong", func() { read(t, b, storage.StrongConsistency, big) }},
	} {
		mu.Lock()
		total = 0
		mu.Unlock()
		c.do()
		mu.Lock()
		spent := fmt.Sprint(math.Round(total*10) / 10)
		for n := 1; n <= 2 && reads+n <= 2*int(time.Since(began)/(2500*time.Millisecond)); n++ {
			if less := fmt.Sprint(math.Round((total-float64(n))*10) / 10); documented[c.call] == less {
				reads += n
				spent = less
			}
		}
		mu.Unlock()
		if documented[c.call] != spent {
			t.Errorf("%s consumes %s units, the README says %q", c.call, spent, documented[c.call])
		}
		delete(documented, c.call)
	}
	for call := range documented {
		t.Errorf("the README's %q is not measured", call)
	}
}

func read(t *testing.T, b storage.Backend, consistency storage.ReadConsistency, res *resourcepb.Resource) {
	t.Helper()
	if _, err := b.Read(t.Context(), consistency, res.GetId()); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, b storage.Backend, consistency storage.ReadConsistency) {
	t.Helper()
	if _, err := b.List(t.Context(), consistency, boxType, tenancy, "o"); err != nil {
		t.Fatal(err)
	}
}
