//go:build integration

package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// listeners are the usual way to deliver the rows of a table without Ashlar: each update notifies, and each process listens, and reads the
// row of each notification by its key. It gets the newest state of a row and not every version, and loses notifications with its
// connection. An update and its notification are one statement and one commit.
type listeners struct {
	*rawPostgres
	updates string
	arrivals
	running sync.WaitGroup
	ends    func()
}

// listened opens the listening connections for the rows of r.
func (r *rawPostgres) listened(b *testing.B, url, channel string, processes int) *listeners {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &listeners{rawPostgres: r, ends: cancel, updates: fmt.Sprintf(
		`with changed as (%s returning id) select pg_notify('%s', id || ' ' || $3) from changed`, r.updates, channel)}
	l.start(processes)
	for i := range processes {
		conn := must(pgx.Connect(ctx, url))
		must(conn.Exec(ctx, "listen "+channel))
		l.running.Go(func() {
			defer conn.Close(context.Background())
			for {
				notification, err := conn.WaitForNotification(ctx)
				if err == nil {
					var version int64
					var data []byte
					key, write, _ := strings.Cut(notification.Payload, " ")
					if err = conn.QueryRow(ctx, r.selects, key).Scan(&version, &data); err == nil {
						l.arrive(i, write)
						continue
					}
				}
				if ctx.Err() == nil {
					b.Error(err)
				}
				l.stop(i)
				return
			}
		})
	}
	return l
}

func (l *listeners) close() {
	l.ends()
	l.running.Wait()
}

// write updates a row and notifies all processes.
func (l *listeners) write(caller, i int) error {
	tag, err := l.pool.Exec(context.Background(), l.updates, rawKey(caller, i), l.data[i%payloads], strconv.Itoa(i))
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("updated %d rows", tag.RowsAffected())
	}
	if err == nil {
		l.acknowledge(strconv.Itoa(i))
	}
	return err
}
