package main

func Example() {
	main()
	// Output: three ticks, three reports
}
