// Package manual writes the manual pages and shell completions of a program from its commands. It
// does not know the programs; package main in cmd/PROGRAM/man passes their commands.
package manual

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// section is the section of the pages: commands for administrators.
const section = "8"

// Entry is a file or variable and its meaning.
type Entry struct{ Name, Text string }

// Program describes a program for its pages.
type Program struct {
	Command *cobra.Command
	version string
	date    time.Time // in the footer of each page

	// Files and Environment are sections of the program's own page. If the description of the
	// command has a paragraph "Environment:", that paragraph takes the place of the section.
	Files       []Entry
	Environment []Entry
	// Status lists the exit statuses. On the page of another command than the program, a paragraph
	// "Exit status:" of its description takes the place of the section.
	Status []Entry
	// Common is the annotation of options that several commands share. A page explains them after
	// its own ones.
	Common string
	// SeeAlso lists pages such as "tenon(8)" for the program's own page.
	SeeAlso []string
	// Foreign lists pages of other programs, such as "tenon-dhcp". A command with such a page name
	// has no page here.
	Foreign []string
}

// write writes a page for the program and each of its visible commands, in DIR/man/man8, and
// completions for bash, zsh and fish in DIR/completion. It replaces existing files.
func (p Program) write(dir string) error {
	p.Command.InitDefaultHelpFlag()
	if err := p.pages(filepath.Join(dir, "man", "man"+section), p.Command); err != nil {
		return err
	}
	if p.Command.CompletionOptions.DisableDefaultCmd {
		return nil
	}
	return completions(filepath.Join(dir, "completion"), p.Command)
}

func (p Program) pages(dir string, cmd *cobra.Command) error {
	if name := pageName(cmd); !slices.Contains(p.Foreign, name) {
		if err := writeFile(filepath.Join(dir, name+"."+section), p.page(cmd)); err != nil {
			return err
		}
	}
	for _, c := range cmd.Commands() {
		if !shown(c) {
			continue
		}
		if err := p.pages(dir, c); err != nil {
			return err
		}
	}
	return nil
}

// shown reports whether a command has a page: generated commands, such as help, have none.
func shown(c *cobra.Command) bool {
	return c.IsAvailableCommand() && c.Name() != "help" && c.Name() != "completion"
}

// pageName returns the name of the page of a command, as git names its pages: tenon-net-new.
func pageName(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-")
}

// completions writes the scripts under the names that the shells expect in their directories.
func completions(dir string, cmd *cobra.Command) error {
	name := cmd.Name()
	for path, generate := range map[string]func(*bytes.Buffer) error{
		"bash/" + name: func(b *bytes.Buffer) error { return cmd.GenBashCompletionV2(b, true) },
		"zsh/_" + name: func(b *bytes.Buffer) error { return cmd.GenZshCompletion(b) },
		"fish/" + name + ".fish": func(b *bytes.Buffer) error {
			return cmd.GenFishCompletion(b, true)
		},
	} {
		var script bytes.Buffer
		if err := generate(&script); err != nil {
			return fmt.Errorf("completion %s: %w", path, err)
		}
		if err := writeFile(filepath.Join(dir, path), script.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}
