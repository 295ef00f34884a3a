package images

import (
	"os"
	"strings"
	"testing"
)

func TestPinned(t *testing.T) {
	for name, image := range map[string]func() string{
		"ASHLAR_POSTGRES_VERSION": Postgres, "ASHLAR_ETCD_VERSION": Etcd,
		"ASHLAR_DYNAMODB_VERSION": DynamoDB, "ASHLAR_PGBOUNCER_VERSION": PgBouncer,
	} {
		t.Setenv(name, "")
		repository, tag, ok := strings.Cut(image(), ":")
		if !ok || repository == "" || tag == "" || tag == "latest" {
			t.Errorf("%s: image %q has no pinned tag", name, image())
		}
		t.Setenv(name, "1.2.3")
		if got, want := image(), repository+":1.2.3"; got != want {
			t.Errorf("with %s=1.2.3: %q, want %q", name, got, want)
		}
	}
}

func TestComposeFileAgrees(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docker-compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(pinnedVersions) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || !strings.HasPrefix(name, "ASHLAR_") || !strings.Contains(string(text), "${"+name+":") {
			continue
		}
		if want := "${" + name + ":-" + value + "}"; !strings.Contains(string(text), want) {
			t.Errorf("docker-compose.yaml has another %s than versions.env: want %s", name, want)
		}
	}
}
