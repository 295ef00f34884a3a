package postgres

import (
	"context"
	"math/bits"
	"time"

	"github.com/jackc/pgx/v5"
)

// growthInterval is the minimum time between two checks of the sizes. An unused handle makes none.
const growthInterval = time.Second

// watchGrowth checks the sizes of the tables while the handle is used, until it is closed.
func (d *database) watchGrowth() {
	for {
		select {
		case <-d.growth.used:
		case <-d.lifetime.Done():
			return
		}
		ctx, cancel := context.WithTimeout(d.lifetime, pollTimeout)
		_ = d.checkGrowth(ctx) // after an error, the next check finds the sizes
		cancel()
		select {
		case <-time.After(growthInterval):
		case <-d.lifetime.Done():
			return
		}
	}
}

// checkGrowth reads the sizes of the tables.
func (d *database) checkGrowth(ctx context.Context) error {
	conn, err := primary(ctx, d.main)
	if err != nil {
		return err
	}
	defer conn.Release()
	return d.withWatchdog(ctx, conn, func(ctx context.Context, conn *pgx.Conn) error {
		var resources, changes int64
		err := conn.QueryRow(ctx, d.sql.tablePages).Scan(&resources, &changes)
		if err == nil {
			d.growth.sizes.Store(sizeClass(resources)<<8 | sizeClass(changes))
		}
		return err
	})
}

// sizeClass returns a number from 1 on that rises when a number of pages has doubled. No plan for a table of 8192 pages or more reads the
// whole table to find a row.
func sizeClass(pages int64) int64 { return 1 + int64(bits.Len64(uint64(min(pages, 8192)))) }
