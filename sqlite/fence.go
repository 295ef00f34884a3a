package sqlite

import (
	"context"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage/driver"
)

// A strong read of a store that has moved must fail, but a read of the fence in each of them would cost a tenth of a read. Instead, each
// change of the fence also changes the schema. In each snapshot, SQLite compiles a statement again if the
// schema has changed. So the fence is as it was, unless the statement has been compiled again.

// checkMoved returns the error of a strong read if the store has moved. The statement has read the data. The fence may be read after it: until
// the store has moved, the state is the newest.
func (c *conn) checkMoved(ctx context.Context, statement string) error {
	s := c.stmts[statement]
	compilations := s.Status(sqlite3.STMTSTATUS_REPREPARE, false)
	seen, known := c.fences[s]
	if !known || seen.compilations != compilations {
		text, err := c.fence()
		if err != nil {
			return err
		}
		seen = seenFence{text, compilations}
		c.fences[s] = seen
	}
	return readError(ctx, seen.text)
}

// fence reads the stored fence, or "".
func (c *conn) fence() (text string, err error) {
	_, err = c.queryRow("read-fence", func(s *sqlite3.Stmt) { text = s.ColumnText(0) })
	return text, err
}

// readError returns the error of a strong read in a store with a fence, or nil.
func readError(ctx context.Context, fence string) error {
	if fence == "" {
		return nil
	}
	return driver.DecodeFence(fence).ReadError(ctx)
}
