package compat

import (
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/consul/proto-public/pbresource"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/compat/foo"
	"github.com/ashlar-dev/storage/service/compat/foopb"
)

// A controller of Consul, of which only the imports have changed, reconciles resources that the published client writes.
func TestPortedController(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx := limited(t)
		m := controller.NewManager(s.resources.Client(), &controller.Options{Leases: s.backend})
		foo.RegisterControllers(m)
		runCtx, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { _ = m.Run(runCtx) })
		defer running.Wait()
		defer stop()

		theirs := func(typ *resourcepb.Type, name string) *pbresource.ID {
			return &pbresource.ID{
				Type:    &pbresource.Type{Group: typ.GetGroup(), GroupVersion: typ.GetGroupVersion(), Kind: typ.GetKind()},
				Tenancy: &pbresource.Tenancy{Partition: "default", Namespace: "default"}, Name: name,
			}
		}
		write := func(id *pbresource.ID, payload proto.Message) {
			t.Helper()
			data, err := anypb.New(payload)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write(ctx, &pbresource.WriteRequest{Resource: &pbresource.Resource{Id: id, Data: data}}); err != nil {
				t.Fatalf("write %v: %v", id, err)
			}
		}
		bar := theirs(foopb.BarType, "bar")
		expect := func(want string) {
			t.Helper()
			fixture.Eventually(t, want, func() bool {
				rsp, err := s.Read(ctx, &pbresource.ReadRequest{Id: bar})
				if err != nil {
					t.Fatal(err)
				}
				status := rsp.GetResource().GetStatus()["consul.io/bar"]
				got := ""
				if status.GetObservedGeneration() == rsp.GetResource().GetGeneration() {
					for _, c := range status.GetConditions() {
						got += c.GetReason() + c.GetResource().GetName() + " "
					}
				}
				return got == want
			})
		}
		write(bar, &foopb.Bar{Baz: "hello", FooName: "foo", Qux: &resourcepb.ID{
			Type: foopb.FooType, Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"}, Name: "qux",
		}})
		expect("FOO_NOT_READY INVALID_REFERENCEqux ")
		write(theirs(foopb.FooType, "foo"), &foopb.Foo{IsReady: true}) // the cached reference leads to the bar
		expect("OK INVALID_REFERENCEqux ")
		write(theirs(foopb.FooType, "qux"), &foopb.Foo{}) // no reference in the cache: the bar is requeued
		expect("OK OK ")
		if _, err := s.Delete(ctx, &pbresource.DeleteRequest{Id: theirs(foopb.FooType, "foo")}); err != nil {
			t.Fatal(err)
		}
		expect("FOO_NOT_READY OK ")
	})
}

// docs/controllers.md shows the ported controller as a change of the original: the added and the unchanged lines are the file.
func TestPortIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/controllers.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("foo/controller.go")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```diff\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/controllers.md has no block of the language diff")
	}
	var shown []string
	for line := range strings.Lines(string(block[1])) {
		switch line[0] {
		case '+', ' ':
			shown = append(shown, line[1:])
		case '\n':
			shown = append(shown, line)
		case '-':
			if !strings.Contains(line, `"`) {
				t.Errorf("the port removes a line that is no import: %s", line)
			}
		}
	}
	_, body, _ := strings.Cut(string(file), "package foo\n")
	if got, want := strings.TrimSpace(strings.Join(shown, "")), strings.TrimSpace("package foo\n"+body); got != want {
		t.Errorf("docs/controllers.md shows\n%s\nexpected service/compat/foo/controller.go:\n%s", got, want)
	}
}
