// Package soak lets clients of a real database write at random for as long as one likes, while connections are cut, answers lost
// and servers restarted, and then checks what everybody saw against what everybody was told. It finds what nobody thought of:
//
//	make soak BACKEND=etcd FOR=10m
//
// Writers create, change, delete and commit on a few hot keys through several handles, most of which reach the server through
// a proxy that misbehaves. Followers watch all of it, and most of them end their watch again and again and resume it by its
// cursor, some through another handle. Every write names the version that it replaces, so a follower's events must form one
// unbroken chain for each key: that is at once the proof that no event is missing, repeated or out of order, and that no two
// writes replaced the same version. A write that succeeded must be in the chain with the version that was returned, one that was
// refused must not, and one whose outcome stayed unknown may be.
//
// The moments of the faults are left to chance, so a seed does not bring back a failure; the chain around the first break is
// what the report shows.
package soak
