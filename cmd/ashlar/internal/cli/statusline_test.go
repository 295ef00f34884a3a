package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1.5s", Duration(1500*time.Millisecond))
	require.Equal(t, "2m1s", Duration(2*time.Minute+1200*time.Millisecond))
}
