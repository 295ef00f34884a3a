package bboltstore

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/ashlar-dev/storage"
)

// openURL opens bbolt:relative/path or bbolt:/absolute/path, with the parameters timeout, max-size, history and create=off.
func openURL(ctx context.Context, u *url.URL) (storage.Backend, error) {
	path, opts, err := parse(u)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	b, err := open(ctx, path, opts)
	if err != nil {
		return nil, err // not b: a nil *Backend is no nil storage.Backend
	}
	return b, nil
}

func parse(u *url.URL) (path string, _ *Options, err error) {
	if path, err = url.PathUnescape(u.Opaque); err != nil {
		return "", nil, err
	}
	path += u.Path // one of them is empty
	if path == "" || u.Host != "" || u.User != nil {
		return "", nil, fmt.Errorf("the URL of a bbolt store is bbolt:relative/path or bbolt:/absolute/path")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", nil, err
	}
	var o Options
	for name := range query {
		value := query.Get(name)
		switch name {
		case "timeout":
			if o.Timeout, err = time.ParseDuration(value); err == nil && o.Timeout <= 0 {
				err = fmt.Errorf("must be more than 0")
			}
		case "max-size":
			o.MaxSize, err = positive(value)
		case "history":
			o.History, err = positive(value)
		case "create":
			if o.NoCreate = value == "off"; value != "on" && value != "off" {
				err = fmt.Errorf("must be on or off")
			}
		default:
			err = fmt.Errorf("unknown; there are timeout, max-size, history and create")
		}
		if err != nil {
			return "", nil, fmt.Errorf("parameter %q: %w", name, err)
		}
	}
	return path, &o, nil
}

func positive(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err == nil && n <= 0 {
		err = fmt.Errorf("must be more than 0")
	}
	return n, err
}
