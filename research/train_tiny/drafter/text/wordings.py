"""Questions of own templates: arithmetic in words, requests for code, and chat. Functions of a random generator."""

NAMES = """Anna Ben Carla David Elena Farid Grace Hassan Ivy Jonas Kim Lena Marco Nadia Oscar Priya Quentin Rosa Samir
Tina Uma Victor Wendy Xavier Yara Zoe Amir Bella Chen Dora""".split()
GOODS = """apples pencils stickers marbles books cookies oranges shells coins candles bottles cards balloons tickets
postcards ribbons muffins stones buttons stamps eggs flowers bracelets notebooks""".split()
PLACES = ["a market", "a school", "a farm", "a library", "a bakery", "a garden center", "a toy shop", "a workshop"]
WORKERS = ["gardener", "painter", "baker", "driver", "tailor", "plumber", "teacher", "carpenter", "fisherman", "nurse"]

SHOPPING = [
    "{a} buys {n} {x} for ${p} each and {m} {y} for ${q} each. How much does {a} pay in total?",
    "{a} has {n} {x}. {b} gives {a} {m} more, and then {a} loses {k} of them. How many {x} does {a} have now?",
    "A box holds {n} {x}. {a} fills {m} boxes and has {k} {x} left over. How many {x} were there at the start?",
    "{a} sells {x} at {place} for ${p} each. On Monday {a} sells {n} and on Tuesday twice as many. How much money does "
    "{a} earn in the two days?",
    "There are {n} {x} in a bag. {a} takes {k} of them, and {b} takes half of what remains. How many are left?",
    "{a} saves ${p} every week. After {m} weeks {a} spends ${k} on {x}. How many dollars does {a} have left?",
    "{a} wants to share {n} {x} equally among {k} friends. How many does each friend get, and how many remain?",
    "At {place}, {x} cost ${p} each, but every third one is free. What does {a} pay for {m} of them?",
    "{a} has {k} times as many {x} as {b}. Together they have {n}. How many {x} does {b} have?",
    "The price of a pack of {x} is ${p}. It rises by {pct}% and then falls by ${q}. What is the price now?",
]
WORK = [
    "A {job} earns ${p} an hour and works {k} hours a day for {m} days. How much does the {job} earn?",
    "{a} drives {n} miles at {p} miles per hour, then {m} miles at {q} miles per hour. How long does the trip take?",
    "A tank holds {n} liters. A pipe fills {p} liters per minute and a leak loses {q} liters per minute. How long until "
    "the tank is full?",
    "{a} reads {k} pages on the first day and {q} more pages each following day. How many pages does {a} read in {m} "
    "days?",
    "A rectangle is {p} meters long and {q} meters wide. A fence costs ${k} per meter. What does the fence around it "
    "cost?",
    "{a} is {k} years older than {b}. In {m} years the sum of their ages will be {n}. How old is {b} today?",
    "A class has {n} students. {pct}% of them play football and the rest play chess. How many play chess?",
    "A {job} can finish a job in {k} hours, and {a} needs {m} hours for it. How long do they need together?",
    "{a} runs {k} laps of {n} meters every day. How many kilometers does {a} run in {m} days?",
    "A recipe for {k} people needs {p} grams of flour. How many grams does {a} need for {m} people?",
]
NUMBERS = [
    "What is {n} + {m}?", "Calculate {n} - {k} * {m}.", "What is {pct}% of {n}?", "Is {n} a prime number?",
    "Solve for x: {k}x + {m} = {n}.", "Simplify the fraction {k}/{n}.", "What is the average of {k}, {m} and {n}?",
    "Find the next number in the sequence {k}, {m}, {n}.", "What is the square of {m}?",
    "Convert {n} minutes to hours and minutes.", "How many seconds are in {k} hours?",
    "What is the area of a circle with radius {k}?", "Factor x^2 + {m}x + {k}.",
]
ENDINGS = ["", "", "", "", " Show your work.", " Think step by step.", " Explain your answer.", " Answer with a number."]


def arithmetic(rng):
    kind = rng.choice((SHOPPING, SHOPPING, WORK, WORK, NUMBERS))
    a, b = rng.sample(NAMES, 2)
    x, y = rng.sample(GOODS, 2)
    return rng.choice(kind).format(
        a=a, b=b, x=x, y=y, place=rng.choice(PLACES), job=rng.choice(WORKERS), n=rng.randint(20, 400),
        m=rng.randint(3, 30), k=rng.randint(2, 12), p=rng.randint(2, 60), q=rng.randint(2, 20),
        pct=rng.choice((5, 10, 15, 20, 25, 30, 40, 50, 60, 75))) + rng.choice(ENDINGS)


TASK_LINES = """returns the sum of all even numbers in a list|checks whether a string is a palindrome
counts the vowels in a string|reverses the words of a sentence|finds the second largest number in a list
computes the factorial of a number|returns the first n Fibonacci numbers|merges two sorted lists into one sorted list
removes duplicates from a list and keeps the order|counts how often each word occurs in a text
checks whether two strings are anagrams|converts a Roman numeral to an integer|finds the longest word in a sentence
computes the greatest common divisor of two numbers|flattens a nested list|rotates a list by k places
checks whether a number is prime|converts Celsius to Fahrenheit|finds the missing number in a list from 1 to n
transposes a matrix|returns all substrings of a string|sorts a dictionary by its values
reads a CSV file and prints the sum of a column|groups words by their first letter|computes the median of a list
validates an email address with a regular expression|implements binary search|implements bubble sort
finds the common elements of two lists|splits a list into chunks of size n|counts the digits of an integer
returns the running maximum of a list|parses a string of brackets and tells whether they are balanced
computes the dot product of two vectors|replaces every space with an underscore|returns the intersection of two sets
converts a list of pairs into a dictionary|finds the shortest path in a graph|encodes a text with a Caesar cipher
generates a random password|simulates rolling two dice|counts the lines of a file|computes compound interest
draws a triangle of stars|returns the n-th row of Pascal's triangle|filters the positive numbers of a list
multiplies two matrices|finds the mode of a list of integers|checks whether a year is a leap year"""
TASKS = [one for line in TASK_LINES.split("\n") for one in line.split("|")]
CODE = ["Write a Python function that {t}.", "Write a function in Python that {t}. Include an example.",
        "Can you show me Python code that {t}?", "Implement a Python function `{f}` that {t}.",
        "I need a short script that {t}.", "How do I write a function that {t} in JavaScript?",
        "Explain step by step how to write a Python function that {t}.", "Write a class in Python with a method that {t}.",
        "def {f}(data):\n    \"\"\"A function that {t}.\"\"\"\n", "Write unit tests for a function that {t}.",
        "Please complete this function, which {t}:\n\ndef {f}(values):\n"]


def code(rng):
    task = rng.choice(TASKS)
    words = [w for w in task.replace("'", "").split() if w.isalpha()]
    return rng.choice(CODE).format(t=task, f="_".join(words[:rng.randint(2, 4)]))


TOPIC_LINES = """gravity|photosynthesis|the French Revolution|machine learning|healthy sleep|volcanoes|the water cycle|inflation
the Roman Empire|renewable energy|black holes|vaccines|jazz music|chess openings|time management|climate change|bees
public speaking|the human heart|electric cars|budgeting|ancient Egypt|coffee|evolution|quantum computers|gardening|yoga
the stock market|democracy|Shakespeare|the solar system|recycling|the immune system|bread baking|mountain climbing
social media|the Great Wall of China|dinosaurs|artificial intelligence|ocean currents|cats|dogs|bicycles|the internet
nutrition|meditation|the periodic table|friendship|remote work|earthquakes|rainforests|electricity|poetry|robots
the Cold War|migration of birds|supply and demand|antibiotics|blockchain|photography|soccer|the moon landing|stress
programming languages|databases|operating systems|job interviews|learning a language|museums|trains|architecture"""
TOPICS = [one for line in TOPIC_LINES.split("\n") for one in line.split("|")]
CHAT = ["What is {t}?", "Explain {t} in simple terms.", "Write a short paragraph about {t}.", "Give me five facts about {t}.",
        "Why is {t} important?", "Write a short story about {t}.", "What are the advantages and disadvantages of {t}?",
        "How does {t} work?", "Summarize what you know about {t} in three sentences.", "Write a poem about {t}.",
        "Give me some tips about {t}.", "Compare {t} and {u}.", "Write an email to a friend about {t}.",
        "Explain {t} to a ten year old child.", "What should a beginner know about {t}?", "List ten words related to {t}.",
        "Write a dialogue between a teacher and a student about {t}.", "What is the history of {t}?",
        "I want to learn more about {t}. Where do I start?", "Write an introduction for an essay on {t}.",
        "What questions could I ask an expert on {t}?", "Make a table that compares {t} with {u}.",
        "Correct the grammar: \"{t} are a thing what many people likes.\"", "Is {t} more important than {u}? Why?",
        "Translate into French: I would like to know more about {t}.", "Create a quiz with four questions about {t}.",
        "What is the most common misunderstanding about {t}?", "Write a product description that mentions {t}.",
        "Hello! Can you help me with {t}?", "Write instructions for a lesson on {t}."]


def chat(rng):
    t, u = rng.sample(TOPICS, 2)
    return rng.choice(CHAT).format(t=t, u=u)


START_LINES = """What|What is|How|How do I|How can|Why|Why does|When|Who|Where|Which|Can you|Could you|Please|Write|Write a
Write a Python|Write a function|Explain|Describe|Give me|List|Tell me|I|I am|I have|I need|I want to|My|In|In the|The|A|If
If a|Suppose|Consider|Let|Given|There are|A group of|A store|A train|A company|Each|Every|During|On Monday|Today|Last|For
Find|Calculate|Compute|Solve|Determine|Evaluate|Simplify|Create|Design|Generate|Develop|Implement|Convert|Translate
Summarize|Rewrite|Edit|Compare|Classify|Identify|Name|Read|Use|Using|Based on|Is|Are|Do|Does|Should|Hi|Hello|Hey|Thanks
def|import|from typing import List|class|SELECT|Here is|This|These|To|As a|You are|Imagine|Think|Help|Make|Provide|Analyze
Discuss|Choose|Complete|Add|Remove|Answer|Define|What are|What does|What would|How many|How much|How long|Janet|John|Mary
Tom|Sarah|Mike|James|Lisa|Emily|Jack|Mr. Smith|Mrs. Brown|Two|Three|Ten|It takes|At the|After|Before|While|Once"""
STARTS = [one for line in START_LINES.split("\n") for one in line.split("|")]
