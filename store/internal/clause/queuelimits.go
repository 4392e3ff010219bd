package clause

// HasLimits is the condition of rows of kagzi.queues that say anything.
const HasLimits = `(max_running > 0 OR rate_interval > 0 OR key_max_running > 0 OR key_interval > 0 OR held
	OR declared IS NOT NULL)`
