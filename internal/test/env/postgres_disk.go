//go:build integration

package env

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// SmallDisk is a Postgres server whose tables are on a separate disk, so that the disk can be full while the server continues.
type SmallDisk struct {
	*PostgresServer
}

const (
	smallDisk = "/small"
	filler    = smallDisk + "/filler"
)

// StartPostgresSmallDisk starts a Postgres server for one test, with a disk of size MiB for the tables.
func StartPostgresSmallDisk(t testing.TB, size int) *SmallDisk {
	t.Helper()
	s := postgresSpec()
	s.tmpfs = map[string]string{smallDisk: fmt.Sprintf("size=%dm", size)}
	c := start(t, s)
	d := &SmallDisk{&PostgresServer{Container: c, URL: postgresURL(c.Addr)}}
	d.Exec(t, "sh", "-c", "mkdir "+smallDisk+"/pg && chown postgres "+smallDisk+"/pg")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn := d.Connect(t)
	for _, sql := range []string{
		"CREATE TABLESPACE small LOCATION '" + smallDisk + "/pg'",
		"ALTER DATABASE " + postgresDatabase + " SET default_tablespace = small",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("env: %s: %v", sql, err)
		}
	}
	return d
}

// Fill fills the disk until free MiB are left. With 0 it ignores the error of a full disk, because the server may write meanwhile.
func (d *SmallDisk) Fill(t testing.TB, free int) {
	t.Helper()
	d.Exec(t, "sh", "-c", fmt.Sprintf("head -c $(( ($(stat -f -c '%%a*%%S' %s) - %d*1024*1024) )) /dev/zero > %s || [ %d = 0 ]", smallDisk, free, filler, free))
}

// Free reverts Fill.
func (d *SmallDisk) Free(t testing.TB) {
	t.Helper()
	d.Exec(t, "rm", filler)
}
