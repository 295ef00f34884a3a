package request

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// The time of a read of the fence is the date of its own answer, even if that is processed late and other answers are processed
// meanwhile.
func TestObserveBesideOthers(t *testing.T) {
	t.Parallel()
	answer := func(at time.Time) middleware.Metadata {
		_, m, err := (&awsmiddleware.RecordResponseTiming{}).HandleDeserialize(t.Context(), middleware.DeserializeInput{},
			middleware.DeserializeHandlerFunc(func(context.Context, middleware.DeserializeInput) (middleware.DeserializeOutput, middleware.Metadata, error) {
				r := &http.Response{Header: http.Header{"Date": {at.UTC().Format(http.TimeFormat)}}}
				return middleware.DeserializeOutput{RawResponse: &smithyhttp.Response{Response: r}}, middleware.Metadata{}, nil
			}))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	begun := time.Now().Truncate(time.Second)
	c := &Clock{local: func() time.Time { return begun }}
	late, fresh := answer(begun), answer(begun.Add(20*time.Minute))
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					c.Observe(fresh)
				}
			}
		})
	}
	for range 200_000 {
		if at := c.Observe(late); !at.Equal(begun) {
			t.Errorf("an answer of %v was taken for one of %v", begun, at)
			break
		}
	}
	close(stop)
	others.Wait()
}
