package params

import (
	"log/slog"
	"os"
)

// Logger returns the logger of the parameter log: one that writes records of that level and above to standard error, or nil without the
// parameter.
func (v *Values) Logger() *slog.Logger {
	text := v.Choice("log", "", "debug", "info", "warn", "error")
	var level slog.Level
	if level.UnmarshalText([]byte(text)) != nil {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}
