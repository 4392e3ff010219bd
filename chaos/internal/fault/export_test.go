package fault

// Points are the points at which workers are killed.
var Points = points

// Statements returns the text by which each kind of statement is recognized.
func Statements() map[string]string {
	all := map[string]string{}
	for _, s := range append(statements[:len(statements):len(statements)], fire, resolve) {
		all[s.name] = s.part
	}
	return all
}
