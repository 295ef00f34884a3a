// Package env gives integration tests real database servers.
//
// A test asks for a server and gets one that is ready:
//
//	func TestMain(m *testing.M) { env.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		url := env.Postgres(t).StoreURL(t) // an empty store, gone when the test is over
//		…
//	}
//
// [Postgres], [Etcd] and [DynamoDB] share one container per test binary, started by the first test that wants it and
// ended by [Main]; every store in it has a schema, prefix or table prefix of its own, so tests run in parallel. Where
// ASHLAR_TEST_POSTGRES_URL, ASHLAR_TEST_ETCD_URL or ASHLAR_TEST_DYNAMODB_URL is set, that server is used instead.
//
// StartPostgres, StartPostgresPair, StartPgBouncer, StartEtcd and StartEtcdCluster give a test servers of its own that
// it may pause, kill, restart and cut off. They keep their address across a restart. More faults of Postgres: a disk that
// stalls and a clock that steps (StartFeignedPostgres, which needs a C compiler), a disk that is full (StartPostgresSmallDisk), a
// server process that is killed (PostgresServer.KillProcess), a synchronous standby that is away or promoted (PostgresPair),
// databases and roles with rights of their own. For slow and broken links there is package faultproxy.
//
// Where neither a container nor a server given by URL is to be had, the test fails and says what to do: a skipped
// integration test looks like a passed one. `make docker images` prepares a machine.
//
// Containers are ended by the tests that started them. One that a killed test binary left behind carries the process id
// of its owner in a label, and the next run removes it.
package env
