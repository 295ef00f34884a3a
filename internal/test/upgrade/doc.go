// Package upgrade tests a rolling upgrade: programs of the previous release and of this one use a store at the same time.
package upgrade
