package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// ReadFlags sets flags to the values in a configuration file: a YAML object whose keys are the names of the flags. A flag with several values
// has a list. Flags of the command line take precedence. All errors are reported at once, with their lines.
func ReadFlags(file string, flags []*pflag.Flag) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	var names []string
	for _, f := range flags {
		names = append(names, f.Name)
	}
	r := yamlReader{file: file}
	for key, value := range r.document(text) {
		i := slices.Index(names, key.Value)
		if i < 0 {
			r.unknownKey(key, names...)
			continue
		}
		r.flag(flags[i], value)
	}
	return errors.Join(r.errs...)
}

// flag sets a flag to a value of the file.
func (r *yamlReader) flag(f *pflag.Flag, value *yaml.Node) {
	several, isList := f.Value.(pflag.SliceValue)
	var texts []string
	if isList && value.Kind == yaml.SequenceNode {
		for _, n := range r.list(value) {
			texts = append(texts, r.text(n))
		}
	} else {
		texts = []string{r.text(value)}
	}
	if f.Changed {
		return
	}
	var err error
	if isList {
		err = several.Replace(texts)
	} else {
		err = f.Value.Set(texts[0])
	}
	if err != nil {
		r.errorf(value, "%s: %w", f.Name, err)
		return
	}
	f.Changed = true
}

// Schema returns the JSON schema of a configuration file with these flags.
func Schema(flags []*pflag.Flag) ([]byte, error) {
	properties := map[string]any{}
	for _, f := range flags {
		property := map[string]any{"description": f.Usage}
		switch f.Value.Type() {
		case "bool":
			property["type"] = "boolean"
		case "int":
			property["type"] = "integer"
		case "float64":
			property["type"] = "number"
		case "duration":
			property["type"], property["pattern"] = "string", `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$`
		case "stringSlice":
			property["type"], property["items"] = "array", map[string]any{"type": "string"}
		default:
			property["type"] = "string"
		}
		properties[f.Name] = property
	}
	return json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Configuration of ashlar serve",
		"type": "object", "additionalProperties": false, "properties": properties,
	}, "", "  ")
}
