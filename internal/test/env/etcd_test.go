//go:build integration

package env

import (
	"context"
	"testing"
)

func TestEtcd(t *testing.T) {
	t.Parallel()
	s := Etcd(t)
	c := s.Client(t)
	key := s.Prefix(t) + "/a"
	if _, err := c.Put(context.Background(), key, "1"); err != nil {
		t.Fatal(err)
	}
	got, err := c.Get(context.Background(), key)
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "1" {
		t.Errorf("%v, %v", got, err)
	}
}
