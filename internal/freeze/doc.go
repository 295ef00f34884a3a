// Package freeze has a process stand still, as a virtual machine that is moved or a laptop that is shut does, and wakes it again.
//
// A signal to stop is not obeyed at once: the kernel tells one of the threads, and the others run on until that one has run. On a busy machine
// a process may so begin a transaction, and then stand still within it, long after another has seen that the store is free.
package freeze
