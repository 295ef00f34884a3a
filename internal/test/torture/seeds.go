package torture

// seeds are the seeds that make test uses, by database. A seed that showed a violation stays here as a case. make torture uses random
// seeds instead, unless SEED is set.
var seeds = map[string][]uint64{
	"memory": {4711},
	"sqlite": {
		11921016279792114526, // a connection returned to the pool inside a transaction
		10882482656447347622, // a compaction ended the watches that were within the kept history
	},
	"postgres": {
		1270789477675233820, // a compaction ended the watches that were within the kept history
	},
	"postgres with a standby":    {4711},
	"postgres with failovers":    {4711},
	"postgres with a small disk": {4711},
	"etcd": {
		9698065852020409242, // a deletion came without its previous value and was taken for a compaction
		97802793055873671,   // a compaction ended the watches that were within the kept history
	},
	"dynamodb":             {4711},
	"dynamodb with splits": {4711},
	"cache over memory":    {4711},
	"cache over sqlite":    {4711},
	"cache over postgres":  {4711},
}
