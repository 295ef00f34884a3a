// Package test contains the tests that span all adapters. Its subpackages are test support: no product package imports them.
package test
