package conformance

import (
	"context"
	"crypto/rand"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// undamagedColumns checks a store with a driver.ColumnChecker while another handle changes it. No resource is damaged, so none is reported.
func undamagedColumns(s *suite) {
	c, has := storage.As[driver.ColumnChecker](s.b)
	if !has {
		return
	}
	_, other := movables(s)
	owners := []*resourcepb.ID{nil}
	for i := range 2 {
		owners = append(owners, must[*resourcepb.Resource](s)(other.WriteCAS(s.ctx, thingNamed(fmt.Sprint("owner-", i)))).Id)
	}
	var things []*resourcepb.Resource
	for i := range 12 {
		thing := thingNamed(fmt.Sprintf("thing-%02d", i))
		thing.Id.Type.Kind = fmt.Sprint("Kind-", i%3)
		thing.Owner = owners[i%3]
		if i == 4 {
			large := make([]byte, 700<<10) // several items in DynamoDB
			_, _ = rand.Read(large)        // never fails
			thing.Data = &anypb.Any{TypeUrl: "x", Value: large}
		}
		things = append(things, must[*resourcepb.Resource](s)(other.WriteCAS(s.ctx, thing)))
	}
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- adopt(ctx, other.Backend, things, owners) }()
	checkColumns(s, c, 100)
	stop()
	s.noError("changing resources", <-ended)
	checkColumns(s, c, 1000)
}

// checkColumns requires that CheckColumns reports nothing.
func checkColumns(s *suite, c driver.ColumnChecker, limit int) {
	for after := []byte(nil); ; {
		wrong, next, err := c.CheckColumns(s.ctx, after, limit)
		if err != nil || len(wrong) > 0 {
			s.Fatalf("CheckColumns with limit %d: %v, %v", limit, wrong, err)
		}
		if after = next; after == nil {
			return
		}
	}
}

// adopt gives each thing another owner and group version, deletes some and creates them again, until ctx ends.
func adopt(ctx context.Context, b storage.Backend, things []*resourcepb.Resource, owners []*resourcepb.ID) error {
	for round := 1; ; round++ {
		for i := range things {
			if ctx.Err() != nil {
				return nil
			}
			next := proto.CloneOf(things[i])
			if (round+i)%4 == 0 {
				if err := b.DeleteCAS(context.WithoutCancel(ctx), next.Id, next.Version); err != nil {
					return err
				}
				next.Version = ""
			}
			next.Owner = owners[(round+i)%len(owners)]
			next.Id.Type.GroupVersion = fmt.Sprint("v", round%2+1)
			stored, err := b.WriteCAS(context.WithoutCancel(ctx), next)
			if err != nil {
				return err
			}
			things[i] = stored
		}
	}
}
