// Package foopb has the messages and types of the controller in package foo.
package foopb

import "github.com/ashlar-dev/storage/resourcepb"

var (
	// BarType is the type of resources with a Bar.
	BarType = &resourcepb.Type{Group: "foo", GroupVersion: "v1", Kind: "Bar"}
	// FooType is the type of resources with a Foo.
	FooType = &resourcepb.Type{Group: "foo", GroupVersion: "v1", Kind: "Foo"}
)
