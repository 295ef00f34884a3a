// Package freeze stops a process and continues it, as happens to a virtual machine that is moved or a laptop that is shut.
//
// A stop signal does not take effect at once: the kernel delivers it to one thread, and the other threads run until that
// thread has run. On a busy machine the process may still begin a transaction in this time. It is then frozen inside the
// transaction, although another process has just seen that the store is free.
package freeze
