// Package heap holds a test of all backends: how much memory a process keeps for watches that nobody reads from.
package heap
