package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// ReadPath reads a file, or all .yaml, .yml and .json files in a directory and its subdirectories, in the order of their names.
func ReadPath(path string, defaults Defaults) ([]*Object, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	if !info.IsDir() {
		return readFile(path, defaults)
	}
	var objects []*Object
	files := 0
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(file))) {
			return nil
		}
		// A link to a file is read. A link to a directory is not followed, because it may lead in a circle.
		if info, err := os.Stat(file); err != nil {
			return err
		} else if !info.Mode().IsRegular() {
			return nil
		}
		files++
		read, err := readFile(file, defaults)
		objects = append(objects, read...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	if files == 0 {
		return nil, fmt.Errorf("read manifests: no .yaml, .yml or .json file in %s", path)
	}
	return objects, nil
}

func readFile(path string, defaults Defaults) ([]*Object, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	objects, err := Read(path, f, defaults)
	return objects, errors.Join(err, f.Close())
}

// reader returns the documents of a stream, and io.EOF after the last one.
type reader interface{ next() (*node, error) }

// Read reads all documents of a stream: YAML documents, or consecutive JSON values. Errors mention name.
func Read(name string, r io.Reader, defaults Defaults) ([]*Object, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("%v: not valid UTF-8", Position{File: name, Document: 1, Line: invalidLine(data)})
	}
	asJSON := strings.EqualFold(filepath.Ext(name), ".json")
	start := bytes.TrimLeft(data, " \t\r\n")
	if !asJSON && (bytes.HasPrefix(start, []byte("{")) || bytes.HasPrefix(start, []byte("["))) {
		// Most JSON is valid YAML, but not \/ and surrogate pairs. Most .yaml files that begin like JSON are JSON.
		objects, err := readAll(name, newJSONReader(data), defaults)
		if err == nil {
			return objects, nil
		}
		asJSON = !strings.Contains(err.Error(), "malformed JSON")
	}
	if asJSON {
		return readAll(name, newJSONReader(data), defaults)
	}
	return readAll(name, newYAMLReader(data), defaults)
}

func invalidLine(data []byte) int {
	line := 1
	for _, part := range bytes.SplitAfter(data, []byte("\n")) {
		if !utf8.Valid(part) {
			break
		}
		line++
	}
	return line
}

func readAll(name string, r reader, defaults Defaults) ([]*Object, error) {
	var objects []*Object
	for document := 1; ; document++ {
		n, err := r.next()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		where := Position{File: name, Document: document}
		if err == nil && n.kind != null {
			where.Line = n.line
			objects, err = appendObjects(objects, where, n, defaults)
		}
		if err != nil {
			var at *lineError
			if errors.As(err, &at) {
				where.Line = at.line
			}
			return nil, fmt.Errorf("%v: %w", where, err)
		}
	}
}

// appendObjects appends the object in n, or the objects of the list in n.
func appendObjects(objects []*Object, where Position, n *node, defaults Defaults) ([]*Object, error) {
	if n.kind != object {
		return nil, errAt(n.line, "a document must be an object, found %v", n.kind)
	}
	var o *Object
	var err error
	switch {
	case n.get("apiVersion") != nil || n.get("kind") != nil:
		if items := listItems(n); items != nil {
			for _, item := range items {
				where.Line = item.line
				if objects, err = appendObjects(objects, where, item, defaults); err != nil {
					return nil, err
				}
			}
			return objects, nil
		}
		o, err = readKubernetes(n, defaults)
	case n.get("id") != nil:
		o, err = readResource(n, defaults)
	default:
		return nil, errAt(n.line, "neither an object in the format of Kubernetes (apiVersion, kind, metadata) nor a resource (id)")
	}
	if err != nil {
		return nil, err
	}
	o.Position = where
	return append(objects, o), nil
}
