package main

func Example() {
	main()
	// Output:
	// Ada confirmed ada@example.org
	// deleted the account of Bob
}
