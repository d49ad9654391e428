package modules

import (
	"strings"
	"testing"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	const mit = "Permission is hereby granted, free of charge, to any\nperson obtaining a copy"
	apache := "                     Apache License\n              Version 2.0, January 2004"
	two := []Text{{"LICENSE", mit}, {"LICENSE.docs", apache}}
	for name, row := range map[string]struct {
		texts []Text
		want  string // "" for an error
	}{
		"MIT":                     {[]Text{{"LICENSE", mit}}, "MIT"},
		"Apache with notice":      {[]Text{{"LICENSE", apache}, {"NOTICE", "By us"}}, "Apache-2.0"},
		"Go":                      {[]Text{{"LICENSE", goLicence}}, "BSD-3-Clause"},
		"two licences":            {two, "Apache-2.0 AND MIT"},
		"the same licence twice":  {[]Text{{"COPYING", mit}, {"LICENSE", mit}}, "MIT"},
		"no licence":              {nil, ""},
		"only a notice":           {[]Text{{"NOTICE.txt", "By us"}}, ""},
		"unknown licence":         {[]Text{{"LICENSE", "All rights reserved"}}, ""},
		"unknown beside known":    {[]Text{{"COPYING", mit}, {"LICENSE", "Other terms"}}, ""},
		"text about a permission": {[]Text{{"LICENSE", "No permission is hereby granted"}}, ""},
	} {
		got, err := classify(row.texts)
		if got != row.want || (err != nil) != (row.want == "") {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, row.want)
		}
	}
}

func TestNotices(t *testing.T) {
	t.Parallel()
	s := Set{Modules: []Module{
		{Path: "a.example/a", Version: "v1.0.0", Licence: "MIT", Texts: []Text{{"LICENSE", "By A\r\n"}}},
		{Path: "b.example/b", Version: "v1.1.0", Licence: "Apache-2.0",
			Texts: []Text{{"LICENSE", "Apache"}, {"NOTICE", "By B"}}},
		{Path: "c.example/c", Version: "v2.0.0", Licence: "Apache-2.0",
			Texts: []Text{{"LICENSE", "\nApache\n"}}},
	}}
	line := strings.Repeat("=", 80)
	want := "The programs of Tenon contain code of these modules.\n" +
		"\n" + line + "\na.example/a v1.0.0 (MIT)\n\nBy A\n" +
		"\n" + line + "\nb.example/b v1.1.0 (Apache-2.0)\nc.example/c v2.0.0 (Apache-2.0)\n\nApache\n" +
		"\n" + line + "\nb.example/b v1.1.0 (Apache-2.0)\n\nBy B\n"
	if got := string(s.Notices()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
