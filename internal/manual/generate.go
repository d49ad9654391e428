package manual

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"
)

// Generate writes the pages and completions of programs. args are the flags of the generator: -out
// DIR, -version V, and -date SECONDS, the time of the pages in seconds since 1970.
func Generate(args []string, programs ...Program) error {
	set := flag.NewFlagSet("man", flag.ContinueOnError)
	dir := set.String("out", "", "write the files to `DIR`")
	version := set.String("version", "unknown", "version of the program")
	date := set.String("date", "0", "time of the pages in `SECONDS` since 1970")
	if err := set.Parse(args); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(*date, 10, 64)
	if err != nil {
		return fmt.Errorf("-date %q: %w", *date, err)
	}
	if *dir == "" || set.NArg() > 0 {
		return errors.New("usage: man -out DIR [-version V] [-date SECONDS]")
	}
	for _, p := range programs {
		p.version, p.date = *version, time.Unix(seconds, 0)
		if err := p.write(*dir); err != nil {
			return err
		}
	}
	return nil
}
