package script

// Recorder is a plugin in the language of sh(1), which can be installed under any name. It records
// each call in files below [Calls]: its name, environment, standard input and exit status, as CALL.name,
// CALL.env and so on. CALL is a number in the order of the starts. Then it answers: if the file
// [Dir]/answers/NAME.VERB exists, where NAME is its own, it is executed as a part of the script with the
// standard input in the file $stdin; else it prints nothing and succeeds. The exit status of the answer
// is its own.
//
// The script needs only POSIX tools, so that a scenario with it can be repeated by hand. It starts
// few processes, because a scenario calls it often.
const Recorder = `#!/bin/sh
PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin
name=${0##*/}
n=1
set -C # only one recorder can create a file
until echo "$name" >` + Calls + `/$n.name; do n=$((n + 1)); done 2>/dev/null
set +C
call=` + Calls + `/$n
stdin=$call.stdin
cat /proc/$$/environ >$call.env
cat >$stdin
trap 'echo $? >$call.status' EXIT
answer=` + Dir + `/answers/$name.$CNI_COMMAND
if [ -f $answer ]; then . $answer; fi
`

// Answers returns the file that scripts the answer of a recorder of a name to a verb.
func Answers(plugin, verb, shell string) File {
	return File{Path: Dir + "/answers/" + plugin + "." + verb, Data: shell}
}

// RecorderFile returns the file of a recorder in [Plugins].
func RecorderFile(name string) File {
	return File{Path: Plugins + "/" + name, Data: Recorder, Mode: 0o755}
}
