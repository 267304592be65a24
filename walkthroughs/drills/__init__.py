"""Interview drills: questions with ids that never change, and answers graded by running code."""
