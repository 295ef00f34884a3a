package dynamodb_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// The answer to the entry of a type is late: meanwhile the table is deleted and restored from a backup without the entry, and the handle
// reads the mark of the restored table. The entry is made again, so lists with wildcards contain the resource.
func TestLateAnswerOfAnEntry(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	var once sync.Once
	delay, delayed, release := false, make(chan struct{}), make(chan struct{})
	b := handleThrough(t, s, func(o *awsdynamodb.Options) {
		late := middleware.DeserializeMiddlewareFunc("Late", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
			out, metadata, err := next.HandleDeserialize(ctx, in)
			if delay && awsmiddleware.GetOperationName(ctx) == "TransactWriteItems" {
				once.Do(func() {
					close(delayed)
					<-release
				})
			}
			return out, metadata, err
		})
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error { return stack.Deserialize.Add(late, middleware.Before) })
	})
	early := box("early", nil)
	early.Id.Type.Kind = "Early"
	early = fixture.Write(t, b, early)
	backup := s.Backup()
	delay = true
	written := make(chan error, 1)
	go func() {
		_, err := b.WriteCAS(t.Context(), box("late", nil))
		written <- err
	}()
	<-delayed
	s.Restore(backup)
	s.Advance(time.Minute)                                                                   // a table is not restored faster
	if _, err := b.Read(t.Context(), storage.StrongConsistency, early.GetId()); err != nil { // learns the time
		t.Fatal(err)
	}
	fixture.Write(t, b, early) // reads the fence and the mark
	close(release)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	all, err := handle(t, s).List(t.Context(), storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, res := range all {
		names = append(names, res.GetId().GetName())
	}
	if want := []string{"late", "early"}; !slices.Equal(names, want) {
		t.Errorf("listed %q, expected %q", names, want)
	}
}
