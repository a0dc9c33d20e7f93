package main

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"waldo/internal/cli/exitcode"
	"waldo/internal/core/approval"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// struckOut returns the rows that a yes to held calls strikes out: those of the flag, or those of the yes before it.
func struckOut(c *cobra.Command, k *approval.Service, q approval.Question, yes bool, flag []int) ([]int, error) {
	if !yes || q.Calls() == nil {
		return slices.Sorted(slices.Values(flag)), nil // the service refuses any
	}
	names, earlier, err := k.Given(c.Context(), q.ID)
	if err != nil || len(names) == 0 || len(flag) > 0 {
		return slices.Sorted(slices.Values(flag)), err
	}
	display.Fprintf(c.ErrOrStderr(), "%s said yes and struck out %s; your yes is for the same\n", strings.Join(names, ", "),
		approval.NameRows(earlier))
	return earlier, nil
}

// askRows reads which rows of a shown question a person strikes out. Nothing typed strikes out none.
func askRows(c *cobra.Command, k *approval.Service, q approval.Question) (rows []int, err error) {
	in, ok := c.InOrStdin().(*os.File)
	if names, _, err := k.Given(c.Context(), q.ID); err != nil || len(names) > 0 || !ok || !terminal.OnScreen(in) {
		return nil, err
	}
	display.Fprintf(c.ErrOrStderr(), "rows to strike out, such as 3,7 (Enter: none): ")
	line, err := terminal.ReadLine(c.Context(), in)
	if err != nil {
		return nil, err
	}
	return rowNumbers(string(line))
}

// rowNumbers reads numbers of rows, such as 3,7, and sorts them.
func rowNumbers(text string) (rows []int, err error) {
	for word := range strings.FieldsSeq(strings.ReplaceAll(text, ",", " ")) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, exitcode.Mistake("nothing was answered; run it again", "%q is not the number of a row", word)
		}
		rows = append(rows, n)
	}
	slices.Sort(rows)
	return rows, nil
}
