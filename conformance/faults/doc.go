// Package faults breaks databases and checks that a storage backend keeps its promises meanwhile. It is to package conformance
// what a storm is to a test drive: conformance asks one question at a time of a healthy database, this package lets many clients
// do everything at once while connections are cut, answers are lost and servers crash, and holds all that anybody was told
// against all that anybody saw.
//
// # Use
//
// A [Harness] says how to open handles of one fresh store and what its database can suffer; what it cannot suffer it says too,
// with a reason. [Run] does the rest, and [Test] is Run for go test:
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
// Databases that run inside the programs that use them, a file for example, have no connection to cut. Their handles are opened in
// processes of their own, which are killed and frozen; the test program is started again for each:
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
// # How a run goes
//
// A run is a series of rounds. In each, workers call everything there is to call on a few keys of the round, hot ones and cold
// ones, patiently and impatiently, with right versions and wrong ones; followers watch the whole store, and end and resume their
// watches on other handles; and a nemesis injects faults, several at once. Then all faults are healed, every key is written once
// more, every follower has to see that, and the round's history is checked. So the memory that a run takes is that of one round,
// and a violation is found within the round that it happened in. Handles, watches and the store live through all rounds.
//
// # Why the checks prove something
//
// Every write names the version that it replaces, and every version is unique. So the events of a key must form one unbroken
// chain, which proves that a watch misses, repeats and swaps nothing, and gives the order of all versions of each key. With that
// order known, strict serializability is no search: every call gets the earliest moment at which it can have happened (its own
// beginning, or the earliest moment of something that must come before it), and the history is good exactly if no call would
// have to happen after it returned, or before itself. The path to a call that would is the explanation that a violation prints.
// Each file named check_*.go holds one check. A second opinion on each key comes from porcupine, a search that knows nothing of chains; its
// picture of the history is written beside the violation.
//
// A call whose outcome is unknown is resolved by the chain: it has happened, at any time after its beginning, if somebody saw
// what it wrote, and otherwise never.
package faults
