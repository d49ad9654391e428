package manual

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"
)

// Request lists the settings of a generator.
type Request struct {
	Dir, Version string
	Date         time.Time
}

// ParseArgs reads the flags of a generator: -out DIR, -version V, and -date SECONDS, the time of the
// pages in seconds since 1970.
func ParseArgs(args []string) (r Request, err error) {
	set := flag.NewFlagSet("man", flag.ContinueOnError)
	set.StringVar(&r.Dir, "out", "", "write the files to `DIR`")
	set.StringVar(&r.Version, "version", "unknown", "version of the program")
	date := set.String("date", "0", "time of the pages in `SECONDS` since 1970")
	if err := set.Parse(args); err != nil {
		return r, err
	}
	seconds, err := strconv.ParseInt(*date, 10, 64)
	if err != nil {
		return r, fmt.Errorf("-date %q: %w", *date, err)
	}
	r.Date = time.Unix(seconds, 0)
	if r.Dir == "" || set.NArg() > 0 {
		return r, errors.New("usage: man -out DIR [-version V] [-date SECONDS]")
	}
	return r, nil
}
