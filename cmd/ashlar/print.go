package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/internal/jsonpb"
	"github.com/ashlar-dev/storage/resourcepb"
)

// output is the flag -o.
type output struct{ format string }

func (o *output) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", "table, json, yaml or name")
	// An error means that the flag does not exist.
	if err := cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]string{"table", "json", "yaml", "name"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

func (o *output) check() error {
	switch o.format {
	case "table", "json", "yaml", "name":
		return nil
	}
	return cli.Usagef("-o must be table, json, yaml or name, found %q", o.format)
}

// printer writes resources in one format. Its methods write to a buffer, and flush writes the buffer to the output.
type printer struct {
	format string
	out    *bufio.Writer
	table  *tabwriter.Writer
	wrote  bool
}

func newPrinter(format string, out io.Writer) *printer {
	p := &printer{format: format, out: bufio.NewWriter(out)}
	p.table = tabwriter.NewWriter(p.out, 0, 8, 2, ' ', 0)
	return p
}

// resource prints a resource of a list, indented by depth levels.
func (p *printer) resource(res *resourcepb.Resource, depth int) error {
	switch p.format {
	case "json":
		text, err := jsonpb.Marshal(res)
		if err != nil {
			return err
		}
		return p.line(text)
	case "yaml":
		text, err := jsonpb.Marshal(res)
		if err != nil {
			return err
		}
		return p.yaml(text)
	case "name":
		return p.line([]byte(cli.FullName(res.GetId())))
	}
	if !p.wrote {
		p.wrote = true
		if err := p.row("TYPE", "PARTITION", "NAMESPACE", "NAME", "OWNER"); err != nil {
			return err
		}
	}
	owner := ""
	if res.GetOwner() != nil {
		owner = cli.FullName(res.GetOwner())
	}
	return p.row(strings.Repeat("  ", depth)+cli.TypeName(res.GetId().GetType()), cli.Printable(res.GetId().GetTenancy().GetPartition()),
		cli.Printable(res.GetId().GetTenancy().GetNamespace()), cli.Printable(res.GetId().GetName()), owner)
}

// single prints a single resource.
func (p *printer) single(res *resourcepb.Resource) error {
	if p.format != "json" {
		return p.resource(res, 0)
	}
	text, err := jsonpb.Marshal(res)
	if err != nil {
		return err
	}
	var wide bytes.Buffer
	if err := json.Indent(&wide, text, "", "  "); err != nil {
		return fmt.Errorf("render a resource: %w", err)
	}
	return p.line(wide.Bytes())
}

// event prints an event, and the position after it unless that is empty.
func (p *printer) event(ev *resourcepb.WatchEvent, cursor string) error {
	if p.format == "json" || p.format == "yaml" {
		text, err := jsonpb.MarshalEvent(ev)
		if err != nil {
			return err
		}
		if cursor != "" {
			text = append(bytes.TrimSuffix(text, []byte("}")), `,"cursor":`+strconv.Quote(cursor)+"}"...)
		}
		if p.format == "yaml" {
			return p.yaml(text)
		}
		return p.line(text)
	}
	what, res := "synced", (*resourcepb.Resource)(nil)
	switch e := ev.GetEvent().(type) {
	case *resourcepb.WatchEvent_Upsert_:
		what, res = "upsert", e.Upsert.GetResource()
	case *resourcepb.WatchEvent_Delete_:
		what, res = "delete", e.Delete.GetResource()
	case *resourcepb.WatchEvent_Bookmark_:
		what = "bookmark"
	}
	words := []string{what}
	switch {
	case res == nil:
	case p.format == "name":
		words = append(words, cli.FullName(res.GetId()))
	default:
		// A stream has no known column widths, so these are a guess.
		words = append(words, fmt.Sprintf("%-28s %-20s %s", cli.TypeName(res.GetId().GetType()),
			cli.Printable(res.GetId().GetTenancy().GetPartition())+"/"+cli.Printable(res.GetId().GetTenancy().GetNamespace()),
			cli.Printable(res.GetId().GetName())))
	}
	if cursor != "" {
		words = append(words, "cursor="+cursor)
	}
	return p.line([]byte(strings.Join(words, " ")))
}

func (p *printer) line(text []byte) error {
	_, err := p.out.Write(append(text, '\n'))
	return err
}

func (p *printer) yaml(text []byte) error {
	text, err := jsonpb.YAML(text)
	if err != nil {
		return err
	}
	if p.wrote {
		text = append([]byte("---\n"), text...)
	}
	p.wrote = true
	_, err = p.out.Write(text)
	return err
}

// value prints a value as JSON, or as YAML in this format. what names it in an error.
func (p *printer) value(what string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("render %s: %w", what, err)
	}
	if p.format == "yaml" {
		return p.yaml(text)
	}
	return p.line(text)
}

func (p *printer) row(cells ...string) error {
	_, err := fmt.Fprintln(p.table, strings.Join(cells, "\t"))
	return err
}

// flush writes the buffer to the output. The columns of a table are aligned between two calls.
func (p *printer) flush() error {
	if err := p.table.Flush(); err != nil {
		return err
	}
	return p.out.Flush()
}
