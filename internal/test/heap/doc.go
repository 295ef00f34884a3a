// Package heap tests how much memory a process keeps for watches that are not read, on all backends.
package heap
