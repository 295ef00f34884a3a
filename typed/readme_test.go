package typed_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/typed"
)

// Service is the payload of a resource.
type Service struct {
	Port int `json:"port"`
}

func Example() {
	ctx := context.Background()
	backend, err := storage.Open(ctx, "mem://") // or sqlite:file.db, postgres://…, etcd://…, dynamodb://…
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	services := typed.NewJSON[Service](backend, typed.NewType("shop", "v1", "Service"))
	set := func(name, tier string, port int) {
		if _, err := services.Apply(ctx, services.ID(nil, name), func(s *typed.Object[Service]) error { // creates or updates
			s.Metadata = map[string]string{"tier": tier}
			s.Data.Port = port
			return nil
		}); err != nil {
			log.Fatal(err)
		}
	}
	set("cart", "front", 80)
	set("stock", "back", 81)

	front := typed.Selector{"tier": "front"}
	for s, err := range services.List(ctx, storage.StrongConsistency, nil, "", front) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("listed", s.ID.Name, s.Data.Port)
	}
	for ev, err := range services.Follow(ctx, nil, "", typed.FollowOptions{Selector: front}) {
		switch {
		case err != nil:
			log.Fatal(err)
		case ev.Kind == typed.Synced: // all stored resources were returned: every change follows
			set("cart", "front", 8080)
			set("cart", "back", 8080)
		case ev.Kind == typed.Put:
			fmt.Println("stored", ev.New.ID.Name, ev.New.Data.Port, "new:", ev.Old == nil)
		case ev.Kind == typed.Deleted:
			fmt.Println("gone", ev.Old.ID.Name)
			return
		}
	}
	// Output:
	// listed cart 80
	// stored cart 80 new: true
	// stored cart 8080 new: false
	// gone cart
}

// The program in README.md is the example above.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	text := string(code)
	text = text[strings.Index(text, "// Service is"):strings.Index(text, "\t// Output:")] + "}\n"
	text = strings.Replace(text, "func Example()", "func main()", 1)
	if !strings.Contains(string(readme), "```go\n"+text+"```\n") {
		t.Errorf("README.md does not contain this program:\n%s", text)
	}
}
