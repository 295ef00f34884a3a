package serve

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage/service/registry"
)

// The files shown in the document are valid.
func TestDocumentedFiles(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../../../docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(document), -1) {
		key, _, _ := strings.Cut(block[1], ":")
		shown[key] = block[1]
	}
	tokens, err := loadTokens(save(t, "tokens.yaml", shown["tokens"]))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := tokens.authenticate(t.Context(), "hello", nil); err != nil || c.(*principal).name != "deployer" {
		t.Errorf("the documented hash belongs to another token: %v, %v", c, err)
	}
	dir := t.TempDir()
	saveSet(t, dir, "a.binpb", schema("inventory.proto", "acme.inventory", message("Service", registry.ScopeUndefined)))
	if err := os.WriteFile(dir+"/"+typeFile, []byte(shown["types"]), 0o600); err != nil {
		t.Fatal(err)
	}
	types, err := newRegistry(&Config{Types: dir}, false)
	if err != nil || len(types.Types()) != 1 {
		t.Error(types, err)
	}
}
