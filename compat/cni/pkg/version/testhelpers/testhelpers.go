package testhelpers

func BuildAt(programSource []byte, gitRef string, outputFilePath string) error {
	panic("not implemented")
}
