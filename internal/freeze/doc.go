// Package freeze stops a process and continues it, as happens to a virtual machine that is moved or a laptop that is shut.
//
// A stop signal does not take effect at once: the kernel delivers it to one thread, and the other threads run until that thread
// has run. On a busy machine a process may begin a transaction in this time, and be frozen within it long after another process
// has seen the store free.
package freeze
