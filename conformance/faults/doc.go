// Package faults injects faults into databases and checks that a storage backend keeps its contract. Package conformance tests one
// promise at a time on a healthy database. This package runs many clients that call everything at the same time, while connections
// break, answers are lost and servers crash, and compares all answers with all events.
//
// # Use
//
// A [Harness] opens handles of one new store and lists the faults of its database, with a reason for each kind of fault that it lacks.
// [Run] does the rest, and [Test] is Run for go test:
//
//	func TestFaults(t *testing.T) {
//		link, _ := proxy.New(server)
//		faults.Test(t, faults.Harness{
//			Open:   func(ctx context.Context) (storage.Backend, error) { return storage.Open(ctx, "mydb://"+link.Addr()) },
//			Around: func(ctx context.Context) (storage.Backend, error) { return storage.Open(ctx, "mydb://"+server) },
//			Faults: faults.Connection(link),
//			Exempt: map[faults.Kind]string{faults.FillDisk: "the server keeps everything in memory", …},
//		}, faults.Options{For: time.Minute})
//	}
//
// An embedded database, a file for example, has no connection to cut. Its handles are opened in processes of their own, which are
// killed and frozen. The test program is started again for each:
//
//	func TestMain(m *testing.M) {
//		if !faults.ServeProcess() {
//			os.Exit(m.Run())
//		}
//	}
//
//	processes := faults.NewProcesses("mydb:" + path)
//	faults.Test(t, faults.Harness{Open: processes.Open, Faults: processes.Faults(), Exempt: …}, faults.Options{})
//
// # A run
//
// A run is a series of rounds. In each round, workers make calls of every kind on a few keys, hot and cold ones, with long and short
// timeouts, with right and wrong versions. Followers watch the whole store; they close their watches and resume them on other handles.
// A nemesis injects faults, several at the same time. Then all faults are healed, every key is written once more, each follower must
// see these writes, and the history of the round is checked. The memory of a run is therefore the memory of one round, and a violation
// is found in the round that it happened in. Handles, watches and the store exist through all rounds.
//
// # Proof
//
// Every write names the version that it replaces, and every version is unique. The events of a key must therefore form one unbroken
// chain. The chain proves that a watch misses, repeats and reorders nothing, and it gives the order of all versions of the key. With
// that order, strict serializability needs no search: every call gets its earliest possible moment: its own beginning, or the
// earliest moment of a call that must precede it. The history is good if no call would happen after it returned, or before itself.
// Otherwise the violation prints the path that leads to the call. Each file check_*.go holds one check. A second opinion on each
// key comes from porcupine, a search that does not use the chains; its picture of the history is written with the violation.
//
// The chain also resolves calls with an unknown outcome: if a follower saw the write, the call happened at some time after its
// beginning; otherwise it never happened.
package faults
