package cli

import (
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/ops/inspect"
)

// attachmentFilter selects attachments by the columns of "tenon ps".
type attachmentFilter struct {
	terms []string // COLUMN=PATTERN
	quiet bool     // print only container IDs
}

// filterColumns are the columns that a filter can use.
var filterColumns = []string{"network", "container", "interface", "address", "runtime", "state"}

func (f *attachmentFilter) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.terms, "filter", "f", nil,
		"list only attachments with `COLUMN=PATTERN`, such as network=pods or state='*gone'; repeatable")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print only the container IDs")
	// The flag exists.
	_ = cmd.RegisterFlagCompletionFunc("filter", completeFilter)
}

func completeFilter(
	*cobra.Command, []string, string,
) (words []cobra.Completion, _ cobra.ShellCompDirective) {
	for _, c := range filterColumns {
		words = append(words, c+"=")
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// check returns an error if a term has no column of the list, or no pattern.
func (f *attachmentFilter) check(a *app) error {
	for _, t := range f.terms {
		column, pattern, ok := strings.Cut(t, "=")
		if !ok {
			return usagef("--filter %q must have the form COLUMN=PATTERN", t)
		}
		if !slices.Contains(filterColumns, column) {
			err := hint(usagef("--filter %q: no column %q", t, column),
				"the columns are "+strings.Join(filterColumns, ", "))
			return a.didYouMean(err, column, filterColumns)
		}
		if _, err := path.Match(pattern, ""); err != nil {
			return usagef("--filter %q: %w", t, err)
		}
	}
	return nil
}

// apply returns the attachments that match all terms.
func (f *attachmentFilter) apply(list []inspect.Attachment) []inspect.Attachment {
	return slices.DeleteFunc(list, func(a inspect.Attachment) bool {
		return slices.ContainsFunc(f.terms, func(t string) bool { return !matchesTerm(a, t) })
	})
}

// matchesTerm reports whether one of the values of an attachment in a column matches a pattern.
func matchesTerm(a inspect.Attachment, term string) bool {
	column, pattern, _ := strings.Cut(term, "=")
	return slices.ContainsFunc(columnValues(a, column), func(value string) bool {
		ok, _ := path.Match(pattern, value) // check has parsed the pattern
		return ok
	})
}

// columnValues returns the values of an attachment in a column.
func columnValues(a inspect.Attachment, column string) []string {
	switch column {
	case "network":
		return []string{a.Attachment.Network}
	case "container":
		return []string{a.Attachment.Container}
	case "interface":
		return []string{a.Attachment.IfName}
	case "runtime":
		return []string{a.Runtime}
	case "state":
		return []string{string(a.State)}
	}
	var addresses []string
	if a.Result != nil {
		for _, ip := range a.Result.IPs {
			addresses = append(addresses, ip.Address.Addr().String())
		}
	}
	return addresses
}
