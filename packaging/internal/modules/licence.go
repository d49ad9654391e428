package modules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licenceFile matches the names under which modules keep licences and notices.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright)([-_.].*)?$`)

// texts reads the licences and notices in the top directory of a module.
func texts(dir string) (list []Text, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		list = append(list, Text{e.Name(), string(content)})
	}
	return list, nil
}

// phrases are characteristic of licences. The first match counts.
var phrases = []struct{ licence, phrase string }{
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
	{"MPL-2.0", "Mozilla Public License, version 2.0"},
	{"Apache-2.0", "Apache License Version 2.0, January 2004"},
	{"BSD-3-Clause", "may be used to endorse or promote products derived from"},
	{"BSD-2-Clause", "Redistribution and use in source and binary forms"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
}

// classify returns the SPDX expression for the licences of a module.
func classify(list []Text) (string, error) {
	var found []string
	for _, text := range list {
		words := strings.Join(strings.Fields(text.Content), " ")
		i := slices.IndexFunc(phrases, func(p struct{ licence, phrase string }) bool {
			return strings.Contains(words, p.phrase)
		})
		isNotice := strings.HasPrefix(strings.ToLower(text.Name), "notice")
		if i < 0 && !isNotice {
			return "", fmt.Errorf("%s: unknown licence: add it to phrases", text.Name)
		}
		if i >= 0 {
			found = append(found, phrases[i].licence)
		}
	}
	if len(found) == 0 {
		return "", errors.New("no licence in the top directory")
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), " AND "), nil
}

// Notices returns a text with the licences of all modules. Modules with the same text share it.
func (s Set) Notices() []byte {
	var b strings.Builder
	b.WriteString("The programs of Tenon contain code of these modules.\n")
	users := map[string][]string{}
	var order []string
	for _, m := range s.Modules {
		for _, t := range m.Texts {
			content := strings.TrimSpace(strings.ReplaceAll(t.Content, "\r\n", "\n"))
			if users[content] == nil {
				order = append(order, content)
			}
			name := fmt.Sprintf("%s %s (%s)", m.Path, m.Version, m.Licence)
			users[content] = append(users[content], name)
		}
	}
	for _, content := range order {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80),
			strings.Join(users[content], "\n"), content)
	}
	return []byte(b.String())
}
