// Package env provides integration tests with real database servers.
//
// A test requests a server and gets one that is ready:
//
//	func TestMain(m *testing.M) { env.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		url := env.Postgres(t).StoreURL(t) // an empty store, deleted at the end of the test
//		…
//	}
//
// [Postgres], [Etcd] and [DynamoDB] share one container per test binary. The first test with a need for the server starts the
// container, and [Main] removes it. Each store has a schema, prefix or table prefix of its own, so tests run in parallel. If
// ASHLAR_TEST_POSTGRES_URL, ASHLAR_TEST_ETCD_URL or ASHLAR_TEST_DYNAMODB_URL is set, that server is used instead.
//
// StartPostgres, StartPostgresPair, StartPgBouncer, StartEtcd and StartEtcdCluster give a test its own servers, which it may pause,
// kill, restart and disconnect. They keep their address across a restart. Further faults of Postgres: a disk that stalls and a
// clock that steps (StartInterceptedPostgres, which needs a C compiler), a full disk (StartPostgresSmallDisk), a killed server process
// (PostgresServer.KillProcess), a synchronous standby that is disconnected or promoted (PostgresPair), databases and roles with
// limited permissions. Package conformance/faults/proxy simulates slow and broken connections.
//
// If neither a container nor a server given by URL is available, the test fails with instructions: a skipped integration test looks
// like a passed one. `make docker images` prepares a machine.
//
// Tests remove the containers that they started. A container that a killed test binary left behind has the process id of its owner
// in a label, and the next run removes it.
package env
