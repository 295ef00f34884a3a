package migrate

import "testing"

// Two stores whose URLs differ in a parameter that selects the server or the database have different names: package moved finds a store by its name,
// and an operator sees which store a message means.
func TestNameDistinguishesStores(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"postgres:///app?host=one.example", "postgres:///app?host=two.example"},
		{"postgres://db/?dbname=one", "postgres://db/?dbname=two"},
		{"postgres://db/?database=one", "postgres://db/?database=two"},
		{"postgres://db/app?port=5432", "postgres://db/app?port=5433"},
		{"postgres:///?service=one", "postgres:///?service=two"},
		{"dynamodb://table?profile=one", "dynamodb://table?profile=two"},
		{"dynamodb://table?role-arn=arn:aws:iam::1:role/a", "dynamodb://table?role-arn=arn:aws:iam::2:role/a"},
	} {
		if one, two := Name(pair[0]), Name(pair[1]); one == two {
			t.Errorf("%s and %s have the same name, %s", pair[0], pair[1], one)
		}
	}
}
