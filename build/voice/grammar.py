"""The sentences the voice is trained on, as a small context-free grammar of the project's own.

A production is a format string; `{name}` expands the symbol `name`. Symbols that need arithmetic
(prices, times, words of the lexicon) are made in `texts.py`: see `texts.MADE`.
"""

GRAMMAR: dict[str, str] = {
    # What is sold. Alternatives are separated by bars.
    "size": "small|medium|large|extra large|regular|kids",
    "drink": "Coke|Diet Coke|Sprite|root beer|lemonade|iced tea|sweet tea|coffee|iced coffee|water|"
    "hot chocolate|orange juice|apple juice|vanilla shake|chocolate shake|strawberry shake|"
    "ginger ale|milk|latte|cappuccino|smoothie|mango slush|cherry soda|decaf",
    "single": "cheeseburger|hamburger|double cheeseburger|bacon burger|veggie burger|"
    "chicken sandwich|fish sandwich|chicken wrap|hot dog|breakfast burrito|egg muffin|salad|"
    "side salad|Caesar salad|baked potato|apple pie|brownie|cookie|sundae|ice cream cone|muffin|"
    "bagel|grilled cheese|taco|quesadilla|steak sandwich|turkey club|kids meal|combo|pancake|"
    "donut|cinnamon roll|corn dog|pretzel|milkshake|soup of the day|tuna melt",
    "plural": "cheeseburgers|hamburgers|double cheeseburgers|bacon burgers|veggie burgers|"
    "chicken sandwiches|fish sandwiches|chicken wraps|hot dogs|breakfast burritos|egg muffins|"
    "salads|baked potatoes|apple pies|brownies|cookies|sundaes|ice cream cones|muffins|bagels|"
    "tacos|quesadillas|chicken nuggets|onion rings|French fries|curly fries|mozzarella sticks|"
    "hash browns|pancakes|donuts|napkins|ketchup packets|straws|kids meals|jalapeno poppers",
    "mass": "fries|curly fries|onion rings|hash browns|nuggets|extra napkins|ranch|barbecue sauce|"
    "honey mustard|coleslaw|mac and cheese|mashed potatoes|sweet potato fries|tater tots|chili",
    "topping": "cheese|bacon|onions|pickles|lettuce|tomato|ketchup|mustard|mayo|mushrooms|"
    "jalapenos|avocado|hot sauce|peppers|extra cheese|gravy|sour cream|butter|cream|sugar|ice|"
    "whipped cream|sprinkles|caramel|syrup|guacamole|relish|Swiss cheese|barbecue sauce",
    "change": "no {topping}|extra {topping}|without {topping}|with {topping}|light {topping}|"
    "no {topping} and extra {topping}|{topping} on the side|well done|plain|to go|"
    "with no {topping} or {topping}",
    "number": "two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|a dozen",
    "thing": "a {size} {drink}|a {size} {drink}|one {single}|{a_single}|{number} {plural}|"
    "a {size} order of {mass}|some {mass}|{number} {size} {drink}s|a {drink}|{mass}|"
    "{a_single} with {mass}|{a_single} with {topping}|{a_single}, {change}|"
    "the number {number} combo|a {number} piece chicken box|{count} {plural}",
    "order": "{thing}|{thing} and {thing}|{thing} and {thing}|{thing}, {thing} and {thing}|"
    "{thing}, {thing}, and {thing}|{thing}, {thing}, {thing} and {thing}",
    # What the agent says.
    "ok": "Got it|Okay|Sure|Sure thing|All right|Perfect|Great|Thanks|Of course|No problem|"
    "Absolutely|Sounds good|Very good|Alright|You got it|Certainly|Good choice|Happy to help",
    "more": "Anything else?|Is that all?|What else can I get you?|Would you like fries with that?|"
    "Will that be everything?|Can I get you anything to drink?|Would you like to add {thing}?|"
    "Do you want {topping} on that?|What size would you like?|For here or to go?|"
    "Would you like to make that a combo?|Do you need any sauce?|Is there anything else today?",
    "confirm": "{ok}, {order}. {more}|{ok}, {order}.|{ok}, {order}. {more}|So that's {order}.|"
    "{ok}, I added {order}. {more}|{ok}, that's {order}. {more}|I have {order}. {more}|"
    "{ok}, I changed it to {thing}. {more}|{ok}, I took off the {single}. {more}|"
    "{ok}, {thing} instead of {thing}.|So far I have {order}. Is that right?|"
    "{ok}, no {topping} on the {single}. {more}|Let me repeat that: {order}.",
    "total": "Your total is {price}.|That comes to {price}. Please pull forward to the window.|"
    "{ok}, that will be {price}.|With tax it is {price}.|Your change is {price}.|"
    "{ok}, your total is {price}. Please drive to the {nth} window.|That is {price}, please.|"
    "The {single} is {price} and the {drink} is {price}.|It was {price} yesterday.",
    "refuse": "Sorry, we don't have {dish}.|I'm sorry, we are out of {plural} today.|"
    "Sorry, we don't sell {dish}. We have {plural} and {plural}.|Sorry, we only serve {mass} after "
    "{time}.|I'm afraid the {drink} machine is down.|No, we don't, but we do have {dish}.|"
    "I can't do that, but I can offer you {thing}.|Sorry, I didn't catch that.|"
    "Sorry, could you say that again?|I can only help with your order.|We close at {time}.",
    "dish": "pizza|sushi|lasagna|steak|ramen|pasta|fried rice|lobster|noodles|curry|waffles|"
    "ribs|shrimp|meatballs|dumplings|falafel|oysters|risotto|burritos|pad thai|pho|beer|wine",
    "greet": "Hi, welcome to {place}. What can I get for you?|Hello! How can I help you?|"
    "Good {daypart}, welcome to {place}. May I take your order?|Hi there! What would you like?|"
    "Welcome! What can I get started for you today?|Good {daypart}, {person}.|Hello, {person}.|"
    "Thanks for waiting. What would you like today?|Hi, this is {person} from {place}.|"
    "Thank you, have a great {daypart}!|Thanks, {person}. See you {day}.|Goodbye!|"
    "Great, please pull forward to the window.|Thank you for coming to {place}.|"
    "Your order will be ready in {number} minutes.|You're welcome.|Have a nice day.",
    "guest": "Can I get {order}?|Could I have {order}, please?|I would like {order} please.|"
    "I'd like {order}.|Let me get {order}.|I'll have {order}.|Hi, I want {order}.|"
    "Give me {order}.|Do you have {dish}?|Do you have {plural}?|How much is {a_single}?|"
    "Can I also get {thing}?|And {thing}, please.|Make that {thing} instead.|"
    "Actually, make it {thing}.|No {topping} please.|What comes with the {single}?|"
    "Is the {single} spicy?|No thanks, that's all.|That's it, thank you.|"
    "Can you take the {topping} off the {single}?|What time do you close on {day}?|"
    "Can I pay with a card?|Could you cut the {single} in half?|I'd like to cancel the {single}.",
    # Clauses, since the think stage cuts at commas.
    "clause": "{ok},|{order}.|{order},|{thing}.|{thing}|{thing},|with {topping},|and {thing}.|"
    "{change}.|but we do have {dish}.|your total is {price}.|so that's {thing},|"
    "and what size would you like?|anything else?|if you like,|no {topping},|please.|{ok}.|{ok}!|"
    "because the {noun} is {adjective},|when {person} arrived,|{price}.|at {time},|{number}.|"
    "after {time}.|or {thing}?|the {adjective} {noun},|Yes.|No.|Yes, please.|No, sorry.|Hi!|Well,|"
    "Sorry,|{person}.|{word}.|{word} {word}.|{word},|{day}.|in the {daypart}.|Oh, really?|Bye.",
    # General English.
    "person": "Anna|Ben|Carlos|Diana|Ethan|Fatima|George|Hannah|Ivan|Julia|Kevin|Laura|Miguel|"
    "Nina|Oscar|Priya|Quinn|Rachel|Samuel|Tara|Victor|Wendy|Xavier|Yuki|Zoe|Mr. Baker|Mrs. Lopez|"
    "Dr. Chen|Ms. Novak|Professor Hill|Aunt May|Uncle Joe|Charlotte|Dmitri|Elena|Hassan|Ingrid",
    "place": "Burger Barn|the corner cafe|Tasty Town|Sunny Side Grill|Main Street Diner|"
    "Harbor Lights|the Blue Spoon|Happy Bun|Golden Fork|River House|Pepper and Salt|Big Sky",
    "town": "Boston|Chicago|Denver|Paris|London|Tokyo|Seattle|Austin|Rome|Berlin|Madrid|Sydney|"
    "Toronto|Cairo|Lima|Oslo|Dublin|Vienna|Prague|Atlanta|Phoenix|Houston|Miami|Portland|Athens",
    "day": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday|tomorrow|next week|today",
    "month": "January|February|March|April|May|June|July|August|September|"
    "October|November|December",
    "daypart": "morning|afternoon|evening|night|weekend|day",
    "nth": "first|second|third|next|last|fourth|fifth|other",
    "noun": "house|river|teacher|garden|window|doctor|bridge|dog|engine|letter|market|museum|train|"
    "kitchen|story|forest|camera|guitar|hospital|island|jacket|key|lamp|mountain|newspaper|ocean|"
    "picture|question|road|school|table|umbrella|village|weather|bicycle|church|dinner|elephant|"
    "farmer|girl|boy|horse|idea|judge|king|lesson|machine|neighbor|office|painting|queen|rabbit|"
    "sister|brother|tree|uncle|voice|wall|yard|airport|battery|candle|driver|exam|flower|glove|"
    "bird|chair|desk|error|friend|game|hat|job|knife|library|meeting|notebook|order|package|"
    "report|ship|ticket|vegetable|wheel|zoo|manager|customer|computer|phone|message|password",
    "plural_noun": "people|children|birds|trees|cars|books|clouds|stars|students|workers|houses|"
    "letters|flowers|boats|questions|machines|horses|neighbors|shoes|windows|numbers|songs|"
    "tourists|pictures|soldiers|nurses|engineers|mountains|oranges|potatoes|keys|bottles|plates",
    "adjective": "old|young|bright|dark|quiet|loud|heavy|light|empty|full|strange|common|warm|"
    "cold|early|late|expensive|cheap|beautiful|ugly|broken|clean|dirty|famous|gentle|honest|"
    "large|little|modern|narrow|perfect|quick|rare|simple|thick|thin|useful|valuable|wild|wise|"
    "yellow|green|purple|wooden|electric|dangerous|delicious|enormous|friendly|generous|golden",
    "verb": "opened|closed|painted|found|lost|followed|watched|carried|cleaned|described|examined|"
    "forgot|heard|imagined|joined|kept|left|measured|noticed|ordered|pushed|pulled|remembered|"
    "repaired|sold|bought|touched|visited|wanted|built|broke|chose|drew|explored|finished|wrote "
    "about|talked about|asked for|looked for|waited for|laughed at|worried about|knew",
    "went": "walked|ran|drove|travelled|hurried|flew|moved|sailed|climbed|returned|came back",
    "adverb": "slowly|quickly|quietly|carefully|again|yesterday|on {day}|before lunch|at {time}|"
    "every {daypart}|without a word|for a long time|last {month}|with {person}|in {town}|twice|"
    "almost every day|in the rain|as usual|by accident|near the {noun}|under the {noun}|at last",
    "np": "the {noun}|the {adjective} {noun}|my {noun}|our {noun}|a {noun_c}|{person}|her {noun}|"
    "the {noun} of {person}|his {adjective} {noun}|these {plural_noun}|the {plural_noun}|"
    "some {adjective} {plural_noun}|that {noun}|{number} {plural_noun}|the {noun} in the {noun}",
    "noun_c": "house|river|teacher|garden|window|doctor|bridge|letter|picture|road|friend|ticket",
    "sentence": "{person} {verb} {np} {adverb}.|{np} {verb} {np}.|{np} {verb} {np} {adverb}.|"
    "The {noun} was {adjective} and {adjective}.|{person} {went} to the {noun} {adverb}.|"
    "When did {person} find {np}?|Why was the {noun} so {adjective}?|There are {count} "
    "{plural_noun} near the {noun}.|There was {np} behind the {noun}.|It is {adjective} in {town}.|"
    "I think {person} {verb} {np}.|I don't know who {verb} {np}.|Please bring {np} {adverb}.|"
    "The {noun} that {person} {verb} was {adjective}.|If the {noun} is {adjective}, call {person}.|"
    "{person} and {person} {went} from {town} to {town} in {month}.|She said, “{np} is here.”|"
    "We will meet {person} on {day} at {time}.|The meeting on {month} {date} is at {time}.|"
    "In {year}, {person} {verb} {np}.|It costs {price} for {count} {plural_noun}.|"
    "Have you ever seen such a {adjective} {noun}?|Nobody {verb} {np}, not even {person}.|"
    "My {noun} is {adjective}; yours is {adjective}.|What a {adjective} {noun}!|"
    "While {person} {verb} {np}, we {went} to {town}.|The {nth} {noun} on the left is {adjective}.|"
    "{count} plus {count} is {count}.|About {count} percent of the {plural_noun} are {adjective}.|"
    "Would you rather have a {adjective} {noun} or {np}?|You should have {verb} {np} {adverb}.|"
    "Because {np} {verb} {np}, everyone {went} {adverb}.|The phone number is {digits}.|"
    "They say {np} {verb} {np}, but {person} never {verb} it.|Is the {noun} in {town}?|"
    "Not only {person}, but also {person}, {verb} {np}.|As soon as it was {adjective}, we {went}.",
    # Words of the pronunciation lexicon, for the sounds the lists above lack.
    "lexical": "{word} {word} {word} {word}.|The {word} {word} the {word}.|{word}, {word}, {word} "
    "and {word}.|I said {word}, not {word}.|What does {word} mean?|{word} and {word}.|"
    "The {word} of {word} was {word}.|Is it {word} or {word}?|{word} {word}|"
    "{person} spelled {word} and {word}.|The {adjective} {word} {verb} a {word}.|"
    "{word} {word} {word} {word} {word} {word} {word}.|My {noun} is {word}, {word}, and {word}!|"
    "They {verb} the {word} {noun} with {word} {word}.|{word} {word} {word}?|How {word} is {word}?",
}
"""Symbol -> alternatives, separated by bars."""

SHARES: dict[str, float] = {
    "confirm": 0.18,
    "guest": 0.08,
    "greet": 0.03,
    "total": 0.04,
    "refuse": 0.04,
    "clause": 0.11,
    "sentence": 0.28,
    "lexical": 0.24,
}
"""Share of the training text each start symbol has."""
