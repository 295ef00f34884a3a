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

// TestNightlyTestsEveryVersion compares the versions in versions.env with the matrix of the nightly workflow and the table in docs/releases.md.
func TestNightlyTestsEveryVersion(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	workflow, table := read("../../../.github/workflows/nightly.yaml"), read("../../../docs/releases.md")
	for _, database := range []struct{ title, variable string }{
		{"Postgres", "ASHLAR_POSTGRES_VERSION"}, {"etcd", "ASHLAR_ETCD_VERSION"}, {"DynamoDB", "ASHLAR_DYNAMODB_VERSION"},
	} {
		var row string
		for line := range strings.Lines(table) {
			if strings.HasPrefix(line, "| "+database.title+" |") {
				row = line
			}
		}
		tested := strings.Fields(strings.Trim(version(database.variable+"S"), `"`))
		if len(tested) == 0 || strings.Count(workflow, "variable: "+database.variable+",") != len(tested) {
			t.Errorf("the nightly workflow does not have the %d versions of %sS", len(tested), database.variable)
		}
		for _, v := range tested {
			if !strings.Contains(workflow, database.variable+", version: "+v+",") && !strings.Contains(workflow, database.variable+`, version: "`+v+`",`) {
				t.Errorf("the nightly workflow lacks %s=%s", database.variable, v)
			}
			if minor := v[:strings.LastIndex(v, ".")]; !strings.Contains(row, strings.TrimPrefix(minor, "v")) {
				t.Errorf("docs/releases.md does not name %s %s", database.title, minor)
			}
		}
	}
}
