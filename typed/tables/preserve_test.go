package tables_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
)

// A Put preserves the fields of the stored JSON object that the table's type lacks, also in an object that was not decoded from it.
func TestPutKeepsPayloadFields(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		b := fixture.Open(t, url)
		s := open(t, url, jobs)
		data, _ := structpb.NewStruct(map[string]any{"worker": "ada", "zone": "west"})
		payload, _ := anypb.New(data)
		job := jobs.ID(office, "copy")
		job.Uid = "1"
		fixture.Write(t, b, &resourcepb.Resource{Id: job, Data: payload})
		for _, worker := range []string{"bob", "eve"} {
			update(ctx, t, s, func(tx *tables.Tx) error {
				o, err := jobs.Edit(tx, job)
				if err != nil {
					return err
				}
				if o.Data.Worker = worker; worker == "eve" {
					o = &typed.Object[Job]{ID: o.ID, Version: o.Version, Data: o.Data}
				}
				return jobs.Put(tx, o)
			})
			if got := string(fixture.Stored(t, b, job).GetData().GetValue()); !strings.Contains(got, "west") || !strings.Contains(got, worker) {
				t.Errorf("stored: %q, expected the worker %s and the zone", got, worker)
			}
		}
	})
}
