package typed_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// server is the type of an older program. The stored servers also have a weight and a secret.
type server struct {
	Name  string            `json:"name"`
	Port  int               `json:"port,omitempty"`
	Limit limit             `json:"limit,omitzero"`
	Tags  []tag             `json:"tags,omitempty"`
	Rows  [][]int           `json:"rows,omitempty"`
	Keys  map[string]limit  `json:"keys,omitempty"`
	Text  map[string]string `json:"text,omitempty"`
	Peers []peer            `json:"peers,omitempty"`
}

type limit struct {
	Rate  int `json:"rate,omitempty"`
	Burst int `json:"burst,omitempty"`
}

type tag struct {
	Label string `json:"label"`
	Value int    `json:"value,omitempty"`
}

type peer struct {
	Name string `json:"name"`
	Port int    `json:"port,omitempty"`
}

// jsonStruct returns the Struct of a JSON text.
func jsonStruct(t *testing.T, text string) *structpb.Struct {
	t.Helper()
	s := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// A write preserves the stored fields that the type lacks, and only in the object that they belong to.
func TestMerge(t *testing.T) {
	t.Parallel()
	c := typed.JSON[server]()
	for name, one := range map[string]struct {
		stored string
		change func(*server)
		want   string
	}{
		"elements rotate and change": {
			`{"name": "n", "tags": [{"label": "a", "value": 1, "x": 1}, {"label": "b", "value": 1, "x": 2}, {"label": "c", "value": 1, "x": 3}]}`,
			func(s *server) { s.Tags = []tag{{"c", 2}, {"a", 2}, {"b", 2}} },
			`{"name": "n", "tags": [{"label": "c", "value": 2}, {"label": "a", "value": 2}, {"label": "b", "value": 2}]}`,
		},
		"elements change in place": {
			`{"name": "n", "tags": [{"label": "a", "value": 1, "x": 1}, {"label": "b", "value": 1, "x": 2}]}`,
			func(s *server) { s.Tags[0].Value, s.Tags[1].Value = 2, 3 },
			`{"name": "n", "tags": [{"label": "a", "value": 2, "x": 1}, {"label": "b", "value": 3, "x": 2}]}`,
		},
		"an element is replaced": {
			`{"name": "n", "tags": [{"label": "a", "value": 1, "x": 1}, {"label": "b", "value": 2, "x": 2}, {"label": "c", "x": 3}]}`,
			func(s *server) { s.Tags[1] = tag{"d", 9} },
			`{"name": "n", "tags": [{"label": "a", "value": 1, "x": 1}, {"label": "d", "value": 9}, {"label": "c", "x": 3}]}`,
		},
		"an element is replaced by one with a common value": {
			`{"name": "n", "tags": [{"label": "a", "value": 1, "x": 1}, {"label": "b", "value": 1, "x": 2}, {"label": "c", "value": 1, "x": 3}]}`,
			func(s *server) { s.Tags[1] = tag{"d", 1} },
			`{"name": "n", "tags": [{"label": "a", "value": 1, "x": 1}, {"label": "d", "value": 1}, {"label": "c", "value": 1, "x": 3}]}`,
		},
		"an element of another name": {
			`{"name": "n", "peers": [{"name": "a", "port": 1, "x": 1}]}`,
			func(s *server) { s.Peers[0].Name = "b" },
			`{"name": "n", "peers": [{"name": "b", "port": 1}]}`,
		},
		"an insertion beside a change, with names": {
			`{"name": "n", "peers": [{"name": "b", "port": 1, "x": 1}, {"name": "c", "port": 1, "x": 2}]}`,
			func(s *server) { s.Peers = []peer{{"a", 1}, {"c", 2}, {"b", 2}} },
			`{"name": "n", "peers": [{"name": "a", "port": 1}, {"name": "c", "port": 2, "x": 2}, {"name": "b", "port": 2, "x": 1}]}`,
		},
		"two elements of one name": {
			`{"name": "n", "peers": [{"name": "b", "port": 1, "x": 1}, {"name": "b", "port": 2, "x": 2}]}`,
			func(s *server) { s.Peers = []peer{{"b", 3}} },
			`{"name": "n", "peers": [{"name": "b", "port": 3}]}`,
		},
		"one of two equal elements remains": {
			`{"name": "n", "tags": [{"label": "a", "x": 1}, {"label": "a", "x": 2}]}`,
			func(s *server) { s.Tags = s.Tags[:1] },
			`{"name": "n", "tags": [{"label": "a"}]}`,
		},
		"the first of two equal elements changes": {
			`{"name": "n", "tags": [{"label": "a", "x": 1}, {"label": "a", "x": 2}]}`,
			func(s *server) { s.Tags[0].Value = 9 },
			`{"name": "n", "tags": [{"label": "a", "value": 9}, {"label": "a", "x": 2}]}`,
		},
		"one of two equal elements is removed": {
			`{"name": "n", "tags": [{"label": "a", "x": 1}, {"label": "b", "x": 2}, {"label": "a", "x": 3}, {"label": "c", "x": 4}]}`,
			func(s *server) { s.Tags = []tag{s.Tags[1], s.Tags[2], s.Tags[3]} },
			`{"name": "n", "tags": [{"label": "b", "x": 2}, {"label": "a", "x": 3}, {"label": "c", "x": 4}]}`,
		},
		"it is unknown which equal element was removed": {
			`{"name": "n", "tags": [{"label": "b", "x": 0}, {"label": "a", "x": 1}, {"label": "a", "x": 2}, {"label": "c", "x": 3}]}`,
			func(s *server) { s.Tags = []tag{{"c", 0}, {"a", 0}, {"b", 0}} },
			`{"name": "n", "tags": [{"label": "c", "x": 3}, {"label": "a"}, {"label": "b", "x": 0}]}`,
		},
		"equal elements with equal unknown fields": {
			`{"name": "n", "tags": [{"label": "b", "x": 0}, {"label": "a", "x": 1}, {"label": "a", "x": 1}]}`,
			func(s *server) { s.Tags = []tag{{"a", 0}, {"b", 0}} },
			`{"name": "n", "tags": [{"label": "a", "x": 1}, {"label": "b", "x": 0}]}`,
		},
		"an insertion beside a change": {
			`{"name": "n", "tags": [{"label": "a", "value": 1, "x": 1}]}`,
			func(s *server) { s.Tags = []tag{{"z", 1}, {"a", 2}} },
			`{"name": "n", "tags": [{"label": "z", "value": 1}, {"label": "a", "value": 2}]}`,
		},
		"a field in another case": {
			`{"NAME": "n", "LIMIT": {"rate": 1, "x": 1}, "port": 1}`,
			func(s *server) { s.Port = 2 },
			`{"name": "n", "limit": {"rate": 1, "x": 1}, "port": 2}`,
		},
		"a field in two cases": {
			`{"NAME": "m", "name": "n", "port": 1}`,
			func(s *server) { s.Port = 2 },
			`{"name": "n", "port": 2}`,
		},
		"letters that fold to ASCII": {
			`{"name": "n", "peer\u017f": [{"name": "a", "x": 1}], "\u212aeys": {"k": {"rate": 1, "x": 2}}}`,
			func(s *server) { s.Name = "m" },
			`{"name": "m", "peers": [{"name": "a", "x": 1}], "keys": {"k": {"rate": 1, "x": 2}}}`,
		},
		"a key of a map in another case": {
			`{"name": "n", "keys": {"K": {"rate": 1, "x": 1}, "l": {"rate": 2, "x": 2}}}`,
			func(s *server) { s.Keys = map[string]limit{"k": {Rate: 3}, "l": {Rate: 4}} },
			`{"name": "n", "keys": {"k": {"rate": 3}, "l": {"rate": 4, "x": 2}}}`,
		},
		"a key of a map that the program removes": {
			`{"name": "n", "text": {"a": "1", "A": "2"}, "y": 1}`,
			func(s *server) { delete(s.Text, "A") },
			`{"name": "n", "text": {"a": "1"}, "y": 1}`,
		},
		"omitempty becomes zero": {
			`{"name": "n", "port": 1, "PORT": 2, "y": 1, "tags": [{"label": "a", "value": 1, "x": 1}]}`,
			func(s *server) { s.Port, s.Tags[0].Value = 0, 0 },
			`{"name": "n", "y": 1, "tags": [{"label": "a", "x": 1}]}`,
		},
		"omitzero becomes zero": {
			`{"name": "n", "limit": {"rate": 1, "burst": 2, "x": 1}, "y": 1}`,
			func(s *server) { s.Limit = limit{} },
			`{"name": "n", "y": 1}`,
		},
		"a field inside omitzero becomes zero": {
			`{"name": "n", "limit": {"rate": 1, "burst": 2, "x": 1}}`,
			func(s *server) { s.Limit.Burst = 0 },
			`{"name": "n", "limit": {"rate": 1, "x": 1}}`,
		},
		"lists of lists": {
			`{"name": "n", "rows": [[1, 2], [3]], "y": 1}`,
			func(s *server) { s.Rows[0] = []int{2} },
			`{"name": "n", "rows": [[2], [3]], "y": 1}`,
		},
	} {
		data, err := anypb.New(jsonStruct(t, one.stored))
		if err != nil {
			t.Fatal(err)
		}
		o, err := c.Object(&resourcepb.Resource{Id: &resourcepb.ID{}, Data: data})
		if err != nil {
			t.Fatal(name, err)
		}
		one.change(&o.Data)
		res, err := c.Resource(o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := &structpb.Struct{}
		if err := res.GetData().UnmarshalTo(got); err != nil {
			t.Fatal(err)
		}
		if want := jsonStruct(t, one.want); !proto.Equal(got, want) {
			t.Errorf("%s: the payload is\n%v, expected\n%v", name, protojson.Format(got), protojson.Format(want))
		}
	}
}

// Whatever a program does to a list, no element receives the unknown fields of an element with another label.
func TestMergeOfRandomLists(t *testing.T) {
	t.Parallel()
	c := typed.JSON[server]()
	for seed := range uint64(2_000) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		stored := &structpb.ListValue{}
		for i := range rnd.IntN(7) {
			element, _ := structpb.NewStruct(map[string]any{"label": fmt.Sprint("l", i), "value": 1 + rnd.IntN(3), "x": fmt.Sprint("l", i)})
			stored.Values = append(stored.Values, structpb.NewStructValue(element))
		}
		data, err := anypb.New(&structpb.Struct{Fields: map[string]*structpb.Value{"name": structpb.NewStringValue("n"), "tags": structpb.NewListValue(stored)}})
		if err != nil {
			t.Fatal(err)
		}
		o, err := c.Object(&resourcepb.Resource{Id: &resourcepb.ID{}, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		tags := o.Data.Tags
		for range rnd.IntN(5) {
			at := rnd.IntN(len(tags) + 1)
			switch {
			case at == len(tags) || rnd.IntN(4) == 0:
				tags = slices.Insert(tags, at, tag{fmt.Sprint("new", rnd.IntN(100)), 1 + rnd.IntN(3)})
			case rnd.IntN(3) == 0:
				tags = slices.Delete(tags, at, at+1)
			case rnd.IntN(2) == 0:
				tags[at].Value = 4 + rnd.IntN(3)
			default:
				other := rnd.IntN(len(tags))
				tags[at], tags[other] = tags[other], tags[at]
			}
		}
		o.Data.Tags = tags
		res, err := c.Resource(o)
		if err != nil {
			t.Fatal(seed, err)
		}
		got := &structpb.Struct{}
		if err := res.GetData().UnmarshalTo(got); err != nil {
			t.Fatal(err)
		}
		for _, element := range got.GetFields()["tags"].GetListValue().GetValues() {
			fields := element.GetStructValue().GetFields()
			if x := fields["x"].GetStringValue(); x != "" && x != fields["label"].GetStringValue() {
				t.Errorf("seed %d: %s has the unknown field of %s", seed, fields["label"].GetStringValue(), x)
			}
		}
	}
}
